// A JavaScript program for benches/diff.py: pages are put together, hashed, sorted and compressed.
// usage: node pages.js ROUNDS SLOWER: compresses SLOWER percent more often than once a page.

const crypto = require("crypto");
const zlib = require("zlib");

let state = 12345;
const draw = (bound) => (state = (state * 1103515245 + 12345) % 2147483648) % bound;

function put_together(number) {
  const rows = [];
  for (let row = 0; row < 150; row++) {
    rows.push({ id: number + row, name: `row ${draw(1000)}`, values: [draw(9), draw(99), draw(999)] });
  }
  return rows;
}

function arrange(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = row.name.split(" ")[1].slice(0, 2);
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups].sort(([one], [other]) => one.localeCompare(other));
}

function main() {
  const [rounds, slower] = process.argv.slice(2).map(Number);
  let owed = 0;
  let size = 0;
  for (let number = 0; number < rounds; number++) {
    const rows = put_together(number);
    const text = JSON.stringify(arrange(rows));
    size += JSON.parse(text).length + text.replace(/"row (\d+)"/g, "$1").length;
    size += crypto.createHash("sha256").update(text.repeat(4)).digest()[0];
    for (owed += 100 + slower; owed >= 100; owed -= 100) {
      size += zlib.deflateSync(text, { level: 1 }).length;
    }
  }
  console.log(size);
}

main();
