/* The kernel: its part of the work is 40 %. */
#include "moved.h"

NOINLINE void kernel_burn(volatile u64 *counter, u64 units)
{
	KEEP_FRAME;
	for (u64 i = units * 8000; i; i--)
		(*counter)++;
}

NOINLINE void kernel_checksum(struct kernel *kernel, u64 units)
{
	kernel_burn(kernel->progress, units);
	kernel->progress[1] += units;
}

NOINLINE void kernel_serve(struct kernel *kernel, u64 units)
{
	kernel_checksum(kernel, units);
	kernel->progress[2] ^= units * 0x9e3779b97f4a7c15;
}

/* Entered by the loader, which goes on in the application. */
void entry(struct kernel *kernel)
{
	kernel->serve = kernel_serve;
}
