/* Something for an unwinder to do: recursion, pointers to functions, a variable-length array,
 * an aligned frame, tail calls, calls into libc that call back, and a signal handler that calls
 * on. Runs for ever; the debugger stops it where it likes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;

NOINLINE static unsigned long work_leaf(unsigned long x)
{
	return x * 2654435761u + 17;
}

NOINLINE static unsigned long many(unsigned long a, unsigned long b, unsigned long c,
				   unsigned long d, unsigned long e, unsigned long f,
				   unsigned long g, unsigned long h)
{
	unsigned long x = work_leaf(a + b), y = work_leaf(c * d), z = work_leaf(e ^ f), w = work_leaf(g - h);
	return work_leaf(x + y) + work_leaf(z + w) + x * y + z * w;
}

NOINLINE static unsigned long fibonacci(unsigned n)
{
	return n < 2 ? work_leaf(n) : fibonacci(n - 1) + fibonacci(n - 2);
}

NOINLINE static unsigned long aligned(unsigned long x)
{
	_Alignas(64) volatile unsigned long block[16];
	for (unsigned i = 0; i < 16; i++)
		block[i] = work_leaf(x + i);
	return block[x % 16];
}

NOINLINE static unsigned long variable(unsigned n)
{
	volatile unsigned char bytes[n + 1];
	memset((void *)bytes, (int)n, n + 1);
	return work_leaf(bytes[n / 2]) + aligned(n);
}

NOINLINE static int order(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	sink += work_leaf(x);
	return (x > y) - (x < y);
}

NOINLINE static unsigned long sorted(unsigned long seed)
{
	unsigned values[8];
	for (unsigned i = 0; i < 8; i++)
		values[i] = (unsigned)(seed = work_leaf(seed));
	qsort(values, 8, sizeof values[0], order);
	return values[3];
}

NOINLINE static unsigned long tail(unsigned long x)
{
	return work_leaf(x + 1);
}

static unsigned long (*volatile table[])(unsigned long) = { work_leaf, aligned, sorted, tail };

static void on_signal(int number)
{
	sink += table[(unsigned)number % 4](sink) + fibonacci(3);
}

NOINLINE static unsigned long formatted(unsigned long x)
{
	char text[64];
	snprintf(text, sizeof text, "%lu %s %g", x, "text", (double)x / 3);
	char *copy = strdup(text);
	unsigned long length = strlen(copy);
	free(copy);
	return length;
}

int main(void)
{
	signal(SIGUSR1, on_signal);
	for (unsigned long round = 0;; round++) {
		sink += many(round, 2, 3, 4, 5, 6, 7, 8);
		sink += fibonacci(round % 5);
		sink += variable((unsigned)(round % 40));
		sink += table[round % 4](round);
		sink += formatted(round);
		if (round % 3 == 0)
			raise(SIGUSR1);
	}
}
