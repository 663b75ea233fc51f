/** A picture as a PDF file of one page: by hand, since nothing may be fetched. */

import { drawingOf } from "./pdf_drawing.js";
import { FONTS } from "./pdf_fonts.js";

/** @param {Uint8Array} bytes @returns {Promise<Uint8Array>} */
async function deflated(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new CompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} dictionary  without what every stream has @param {Uint8Array} bytes */
async function streamOf(dictionary, bytes) {
  const data = await deflated(bytes);
  return [`<< ${dictionary} /Filter /FlateDecode /Length ${data.length} >>\nstream\n`, data, "\nendstream"];
}

/**
 * @param {SVGElement} picture @param {number} width  of its drawing @param {number} height
 * @param {number} points  that the page is wide
 * @param {boolean} serif @param {(href: string) => Promise<HTMLImageElement>} loaded
 */
export async function pdfOf(picture, width, height, points, serif, loaded) {
  const holder = document.createElement("div");
  // Where it is measured and not seen.
  Object.assign(holder.style, { position: "fixed", left: "-20000px", top: "0", whiteSpace: "pre" });
  holder.setAttribute("aria-hidden", "true");
  holder.append(picture);
  document.body.append(holder);
  /** @type {import("./pdf_drawing.js").Drawing} */
  let drawing;
  try {
    drawing = await drawingOf(/** @type {SVGSVGElement} */ (picture), serif, loaded);
  } finally {
    holder.remove();
  }
  const scale = points / width;
  const tall = (height * scale).toFixed(2);
  const content = `${scale.toFixed(5)} 0 0 ${(-scale).toFixed(5)} 0 ${tall} cm\n${drawing.operators}`;
  const [fonts, images] = [5, 5 + FONTS.length];
  const resources = [
    `/Font << ${FONTS.map((name, at) => `/${name} ${fonts + at} 0 R`).join(" ")} >>`,
    `/XObject << ${drawing.bitmaps.map((_, at) => `/I${at} ${images + at} 0 R`).join(" ")} >>`,
    `/ExtGState << ${drawing.opacities.map((one, at) => `/O${at} << ${one} >>`).join(" ")} >>`,
  ].join(" ");
  const objects = [
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${points.toFixed(2)} ${tall}] /Contents 4 0 R /Resources << ${resources} >> >>`,
    ],
    await streamOf("", new TextEncoder().encode(content)),
    ...FONTS.map((name) => [
      `<< /Type /Font /Subtype /Type1 /BaseFont /${name}${name === "Symbol" ? "" : " /Encoding /WinAnsiEncoding"} >>`,
    ]),
    ...(await Promise.all(
      drawing.bitmaps.map(({ width: across, height: down, data, mask }) =>
        streamOf(
          `/Type /XObject /Subtype /Image /Width ${across} /Height ${down} ${mask ? "/ImageMask true /BitsPerComponent 1" : "/ColorSpace /DeviceRGB /BitsPerComponent 8"}`,
          data,
        ),
      ),
    )),
  ];
  return fileOf(objects);
}

/** @param {(string|Uint8Array)[][]} objects */
function fileOf(objects) {
  /** @type {(string|Uint8Array)[]} */
  const parts = ["%PDF-1.4\n"];
  let length = parts[0].length;
  const places = objects.map((object, at) => {
    const place = length;
    for (const part of [`${at + 1} 0 obj\n`, ...object, "\nendobj\n"]) {
      parts.push(part);
      length += part.length;
    }
    return place;
  });
  const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
  const count = objects.length + 1;
  parts.push(
    `xref\n0 ${count}\n0000000000 65535 f \n${table}trailer\n<< /Size ${count} /Root 1 0 R >>\nstartxref\n${length}\n%%EOF\n`,
  );
  return new Blob(/** @type {BlobPart[]} */ (parts), { type: "application/pdf" });
}
