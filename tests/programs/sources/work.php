<?php
// Work for an interpreter and its compiler: arithmetic, recursion, sorting, strings. It goes on until it is ended.

function mandel(int $size): int
{
    $inside = 0;
    for ($y = 0; $y < $size; $y++) {
        for ($x = 0; $x < $size; $x++) {
            $a = $b = 0.0;
            for ($n = 0; $n < 50 && $a * $a + $b * $b < 4; $n++) {
                $next = $a * $a - $b * $b + 3 * $x / $size - 2;
                $b = 2 * $a * $b + 2 * $y / $size - 1;
                $a = $next;
            }
            $inside += $n == 50 ? 1 : 0;
        }
    }
    return $inside;
}

function tree(int $n): int
{
    return $n < 2 ? 1 : tree($n - 1) + tree($n - 2);
}

function words(): array
{
    $words = [];
    for ($i = 0; $i < 5000; $i++) {
        $words[] = (string) ($i * 7919 % 10007);
    }
    sort($words, SORT_STRING);
    return $words;
}

while (true) {
    mandel(60);
    tree(18);
    md5(implode(' ', words()));
}
