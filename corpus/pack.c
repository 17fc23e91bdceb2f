/* Two threads that pack invented text with pack_lib.c for two seconds. Like a program of a distribution it has
 * neither frame pointers nor symbols, and spends most of its time in a library. */
#include "pack.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Syllables that follow one another by a generator of Lehmer's: text enough for a packer. */
static NOINLINE unsigned long invent(unsigned char *bytes, size_t length, unsigned long state)
{
	static const char syllables[16][4] = {
		"ka", "lo", "mi ", "re", "tu", "sa", "no ", "fe",
		"vi", "du", "pa ", "go", "ze", "hi", "wu ", "xa",
	};

	for (size_t i = 0; i < length;) {
		state = state * 48271 % 2147483647;
		for (const char *at = syllables[state >> 7 & 15]; *at && i < length; at++)
			bytes[i++] = *at;
	}
	return state;
}

static NOINLINE unsigned long pack_some(unsigned long *state)
{
	unsigned char text[PACK_BLOCK], packed[2 * PACK_BLOCK];

	*state = invent(text, sizeof text, *state);
	size_t length = pack_block(text, sizeof text, packed);
	return pack_sum(packed, length);
}

static void *work(void *seed)
{
	unsigned long state = *(unsigned long *)seed, sum = 0;
	double end = now() + 2;

	while (now() < end)
		sum ^= pack_some(&state);
	*(unsigned long *)seed = sum;
	return 0;
}

int main(void)
{
	unsigned long seeds[2] = { 1, 2 };
	pthread_t thread;

	pthread_create(&thread, 0, work, &seeds[1]);
	work(&seeds[0]);
	pthread_join(thread, 0);
	printf("%lx\n", seeds[0] ^ seeds[1]);
	return 0;
}
