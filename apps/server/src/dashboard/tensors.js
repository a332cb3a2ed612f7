// Pictures and numbers as inputs of models.

/** Which elements an input has where what is open is 1. */
export const sizes = (input) => input.shape.map((size) => (size < 0 ? 1 : size));

/**
 * Where an input holds a picture: [n, c, h, w] or [n, h, w, c] with one or three channels. Open heights
 * and widths are the picture's own.
 */
export function pictured(input) {
  const holds = ["FP32", "UINT8"].includes(input.datatype);
  if (!holds || input.shape.length !== 4) return null;
  const [, second, third, last] = input.shape;
  const isCount = (size) => size === 1 || size === 3;
  if (isCount(second)) return { channels: second, height: third, width: last, first: true };
  if (isCount(last)) return { channels: last, height: second, width: third, first: false };
  return null;
}

/** The pixels of a picture at the size of an input, 0 to 255, of which `show` is given a preview. */
async function pixels(file, { width, height }, show) {
  const bitmap = await createImageBitmap(file);
  const [w, h] = [width > 0 ? width : bitmap.width, height > 0 ? height : bitmap.height];
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  // What is transparent is white, as on paper.
  context.fillStyle = "white";
  context.fillRect(0, 0, w, h);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, w, h);
  show(canvas);
  return { w, h, data: context.getImageData(0, 0, w, h).data };
}

/**
 * A picture as an input: `scale` is what a value of 255 becomes; `invert` takes dark for much, as ink on
 * paper is.
 */
export async function fromPicture(file, input, { scale, invert }, show) {
  const at = pictured(input);
  const { w, h, data } = await pixels(file, at, show);
  const values = new Float32Array(at.channels * w * h);
  for (let pixel = 0; pixel < w * h; pixel += 1) {
    const [red, green, blue] = data.subarray(4 * pixel, 4 * pixel + 3);
    const parts = at.channels === 1 ? [0.299 * red + 0.587 * green + 0.114 * blue] : [red, green, blue];
    parts.forEach((part, channel) => {
      const value = ((invert ? 255 - part : part) / 255) * scale;
      values[at.first ? channel * w * h + pixel : pixel * at.channels + channel] = value;
    });
  }
  const shape = at.first ? [1, at.channels, h, w] : [1, h, w, at.channels];
  const isWhole = input.datatype === "UINT8";
  const numbers = Array.from(values, (value) => (isWhole ? Math.round(value) : value));
  return { name: input.name, datatype: input.datatype, shape, data: numbers };
}

/** Nested lists of numbers, or one list, as an input. */
export function fromText(text, input) {
  const read = JSON.parse(text);
  const shape = [];
  for (let part = read; Array.isArray(part); part = part[0]) shape.push(part.length);
  const data = [read].flat(Infinity);
  const expected = sizes(input);
  const many = expected.reduce((all, size) => all * size, 1);
  const isFlat = shape.length < 2 && expected.length !== 1;
  if (isFlat && data.length !== many) throw new Error(`${input.name} has ${data.length} values, expected ${many} for the shape [${expected}]`);
  return { name: input.name, datatype: input.datatype, shape: isFlat ? expected : shape, data };
}

/** The indices of the largest values, the largest first. */
export function largest(values, most) {
  const order = values.map((value, at) => [value, at]);
  order.sort(([a], [b]) => b - a);
  return order.slice(0, most).map(([value, at]) => ({ at, value }));
}
