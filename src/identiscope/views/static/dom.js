/** Elements, made from text and never from markup. */

/**
 * @param {string} tag
 * @param {Object<string, any>} [attributes]  `on…` are listeners, null and false are left out
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function html(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/**
 * @param {string} tag
 * @param {Object<string, any>} [attributes]
 * @param {...(Node|string|null)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (
    filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children)
  );
}

/** @param {Element} element @param {Object<string, any>} attributes @param {(Node|string|null)[]} children */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A drop-down list. @param {string} label @param {{value: string, text: string}[]} options @param {(value: string) => void} onchange */
export function choice(label, options, onchange) {
  const list = /** @type {HTMLSelectElement} */ (
    html(
      "select",
      { onchange: (/** @type {Event} */ event) => onchange(/** @type {HTMLSelectElement} */ (event.target).value) },
      ...options.map(({ value, text }) => html("option", { value }, text)),
    )
  );
  return { list, element: html("label", { class: "choice" }, html("span", {}, label), list) };
}
