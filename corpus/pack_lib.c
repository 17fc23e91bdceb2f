/* The library of pack.c: sorts the rotations of a block (Burrows and Wheeler), moves to front what occurs, and
 * writes runs. Built without frame pointers and stripped, so that only call frame information tells its callers,
 * and only its two entries have names. Its comparisons are called back by libc's sort. */
#include "pack.h"
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

struct block {
	const unsigned char *bytes;
	size_t length;
};

static int compare_rotations(const void *left, const void *right, void *of)
{
	const struct block *block = of;
	size_t a = *(const unsigned *)left, b = *(const unsigned *)right;

	for (size_t i = 0; i < block->length; i++) {
		int difference = block->bytes[a] - block->bytes[b];
		if (difference)
			return difference;
		a = a + 1 == block->length ? 0 : a + 1;
		b = b + 1 == block->length ? 0 : b + 1;
	}
	return 0;
}

static NOINLINE void sort_rotations(const struct block *block, unsigned *order)
{
	for (size_t i = 0; i < block->length; i++)
		order[i] = i;
	qsort_r(order, block->length, sizeof *order, compare_rotations, (void *)block);
}

/* Each byte becomes the number of others since it was last seen. */
static NOINLINE void move_to_front(unsigned char *bytes, size_t length)
{
	unsigned char places[256];

	for (int i = 0; i < 256; i++)
		places[i] = i;
	for (size_t i = 0; i < length; i++) {
		unsigned char byte = bytes[i];
		int place = 0;
		while (places[place] != byte)
			place++;
		memmove(places + 1, places, place);
		places[0] = byte;
		bytes[i] = place;
	}
}

static NOINLINE size_t write_runs(const unsigned char *bytes, size_t length, unsigned char *out)
{
	size_t written = 0;

	for (size_t i = 0; i < length;) {
		size_t end = i;
		while (end < length && end - i < 255 && bytes[end] == bytes[i])
			end++;
		out[written++] = end - i;
		out[written++] = bytes[i];
		i = end;
	}
	return written;
}

size_t pack_block(const unsigned char *bytes, size_t length, unsigned char *out)
{
	unsigned order[PACK_BLOCK];
	unsigned char last[PACK_BLOCK];
	struct block block = { bytes, length };

	sort_rotations(&block, order);
	for (size_t i = 0; i < length; i++)
		last[i] = bytes[(order[i] + length - 1) % length];
	move_to_front(last, length);
	return write_runs(last, length, out);
}

unsigned long pack_sum(const unsigned char *bytes, size_t length)
{
	unsigned long sum = 5381;

	for (int round = 0; round < 40; round++)
		for (size_t i = 0; i < length; i++)
			sum = sum * 33 ^ bytes[i];
	return sum;
}
