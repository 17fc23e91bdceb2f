/* The application: 60 % of the work is its own, 40 % the kernel's for it. */
#include "moved.h"

NOINLINE void app_burn(volatile u64 *counter, u64 units)
{
	KEEP_FRAME;
	for (u64 i = units * 8000; i; i--)
		(*counter)++;
}

NOINLINE void app_compute(struct kernel *kernel, u64 units)
{
	app_burn(kernel->progress, units);
	kernel->progress[3] += units * 7;
}

NOINLINE void app_ask(struct kernel *kernel, u64 units)
{
	kernel->serve(kernel, units);
	kernel->progress[4] += units * 11;
}

void entry(struct kernel *kernel)
{
	for (;;) {
		app_compute(kernel, 60);
		app_ask(kernel, 40);
	}
}
