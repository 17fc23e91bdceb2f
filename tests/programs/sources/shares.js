// Three functions whose shares of the processor time it tells itself.
"use strict";

function alpha(x) {
    for (let i = 0; i < 500000; i++) {
        x ^= x << 13;
        x ^= x >>> 7;
        x ^= x << 17;
    }
    return x;
}

function beta(words) {
    return words.slice().sort((a, b) => (a < b ? -1 : a > b ? 1 : 0)).length;
}

function gamma(keys) {
    const seen = new Map();
    for (let i = 0; i < keys; i++) seen.set("k" + (i * 7919) % 10007, { at: i });
    return seen.size;
}

let sink = 1;
function outer(words, taken) {
    const a = performance.now();
    sink += alpha(sink + 1);
    const b = performance.now();
    sink += beta(words);
    const c = performance.now();
    sink += gamma(5000);
    const d = performance.now();
    taken[0] += b - a;
    taken[1] += c - b;
    taken[2] += d - c;
    sink |= 0;
}

const words = Array.from({ length: 2000 }, (_, i) => String((i * 7919) % 10007));
const taken = [0, 0, 0];
let told = performance.now();
function main() {
    for (;;) {
        outer(words, taken);
        if (performance.now() > told + 200) {
            told = performance.now();
            const [a, b, c] = taken.map((ms) => (ms / 1000).toFixed(4));
            require("fs").writeSync(1, `alpha ${a} beta ${b} gamma ${c}\n`);
        }
    }
}
main();
