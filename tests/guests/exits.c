/* exits=N: vCPU 0 leaves the guest on purpose, in N rounds, each kind in a function of its own; then it does the
 * ordinary work. exits_done counts them as they are done: ports, MMIO, CPUID, halts. */
#include "guest.h"

volatile u64 exits_done[4];
volatile u64 halted_ticks;              /* of the time-stamp counter, between before a halt and after it */

#define BEYOND_MEMORY ((volatile u32 *)0x20000000)      /* nothing is there, so that the monitor answers */

NOINLINE void exit_port(void)
{
	for (int i = 0; i < 4; i++) {
		outb(0x80, i);
		exits_done[0]++;
	}
}

NOINLINE void exit_mmio(void)
{
	for (int i = 0; i < 3; i++) {
		(void)*BEYOND_MEMORY;
		exits_done[1]++;
	}
}

NOINLINE void exit_cpuid(void)
{
	u32 out[4];
	for (int i = 0; i < 5; i++) {
		cpuid(0, out);
		exits_done[2]++;
	}
}

NOINLINE void exit_halt(void)
{
	u64 since = ticks();
	block();
	halted_ticks += ticks() - since;
	exits_done[3]++;
}

NOINLINE void exits_round(int vcpu, u64 rest, int halts)
{
	burn(progress[vcpu], rest);
	exit_port();
	exit_mmio();
	exit_cpuid();
	if (halts)
		exit_halt();
}
