/* Debian's liblzma for benches/diff.py: blocks are packed, unpacked and checked.
   usage: packer ROUNDS SLOWER: unpacks SLOWER percent more often than is due. */

#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))
#define BLOCK 60000

static uint8_t plain[BLOCK], packed[2 * BLOCK], again[BLOCK];

APART static void make(uint64_t state) {
    for (size_t at = 0; at < BLOCK;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t back = (state >> 33) % 3000 + 1, length = (state >> 50) % 24 + 3;
        while (length-- && at < BLOCK) {
            plain[at] = at >= back && (state >> 20 & 3) ? plain[at - back] : (uint8_t)(state >> (length % 40));
            at++;
        }
    }
}

APART static size_t pack(void) {
    size_t size = 0;
    if (lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, plain, BLOCK, packed, &size, sizeof packed) != LZMA_OK)
        exit(1);
    return size;
}

APART static void unpack(size_t packed_size) {
    size_t in = 0, out = 0;
    uint64_t limit = UINT64_MAX;
    if (lzma_stream_buffer_decode(&limit, 0, NULL, packed, &in, packed_size, again, &out, BLOCK) != LZMA_OK)
        exit(1);
}

APART static uint64_t check(void) {
    uint64_t sum = 0;
    for (int times = 0; times < 20; times++) sum ^= lzma_crc64(again, BLOCK, sum);
    return sum;
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "usage: packer ROUNDS SLOWER\n"), 2;
    long rounds = atol(words[1]), slower = atol(words[2]), owed = 0;
    uint64_t sum = 0;
    for (long round = 0; round < rounds; round++) {
        make(round);
        size_t size = pack();
        for (owed += 100 + slower; owed >= 100; owed -= 100) unpack(size);
        sum ^= check();
    }
    printf("%llu\n", (unsigned long long)sum);
}
