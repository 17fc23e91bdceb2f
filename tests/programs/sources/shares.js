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

// Calls no builtin: those that have no frame of their own hide who called them.
function gamma(numbers) {
    let sum = 0;
    for (let round = 0; round < 40; round++) {
        for (let i = 1; i < numbers.length; i++) {
            numbers[i] = numbers[i] * 0.999 + numbers[i - 1] * 0.001;
            sum += numbers[i];
        }
    }
    return sum;
}

// Milliseconds of processor time; this thread is the only one that works.
function now() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
}

let sink = 1;
function outer(words, taken) {
    const a = now();
    sink += alpha(sink + 1);
    const b = now();
    sink += beta(words);
    const c = now();
    sink += gamma(numbers);
    const d = now();
    taken[0] += b - a;
    taken[1] += c - b;
    taken[2] += d - c;
    sink |= 0;
}

const words = Array.from({ length: 2000 }, (_, i) => String((i * 7919) % 10007));
const numbers = Float64Array.from({ length: 10000 }, (_, i) => (i * 7919) % 10007);
const taken = [0, 0, 0];
let told = now();
function main() {
    for (;;) {
        outer(words, taken);
        if (now() > told + 200) {
            told = now();
            const [a, b, c] = taken.map((ms) => (ms / 1000).toFixed(4));
            require("fs").writeSync(1, `alpha ${a} beta ${b} gamma ${c}\n`);
        }
    }
}
main();
