/** A picture as a PDF file of one page: by hand, since nothing may be fetched. */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} width  in points
 * @param {number} height
 */
export function pdfOf(canvas, width, height) {
  const url = canvas.toDataURL("image/jpeg", 0.95);
  const begin = "data:image/jpeg;base64,";
  if (!url.startsWith(begin)) throw new Error("the picture is larger than this browser can make");
  const image = Uint8Array.from(atob(url.slice(begin.length)), (sign) => sign.charCodeAt(0));
  const size = [width, height].map((one) => one.toFixed(2)).join(" ");
  const drawing = `q ${width.toFixed(2)} 0 0 ${height.toFixed(2)} 0 0 cm /I Do Q`;
  const picture = `<< /Type /XObject /Subtype /Image /Width ${canvas.width} /Height ${canvas.height} /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode /Length ${image.length} >>`;
  const objects = [
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${size}] /Contents 4 0 R /Resources << /XObject << /I 5 0 R >> >> >>`,
    ],
    [`<< /Length ${drawing.length} >>\nstream\n${drawing}\nendstream`],
    [`${picture}\nstream\n`, image, "\nendstream"],
  ];
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
