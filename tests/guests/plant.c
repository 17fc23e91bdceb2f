/* plant=N: before its work the guest spends N milliseconds in a phase of its own, by the ACPI timer of QEMU's q35, that
 * counts the guest's time: it stands still while QEMU holds the guest. What it counted is printed. */
#include "guest.h"

#define TIMER_PORT 0x608        /* where the firmware puts it */
#define TIMER_BITS 0xffffff
#define TICKS_PER_MS 3580       /* of 3.579545 MHz */

static u32 timer(void)
{
	u32 value;
	asm volatile("inl %1, %0" : "=a"(value) : "Nd"((u16)TIMER_PORT));
	return value & TIMER_BITS;
}

NOINLINE u64 planted(u64 milliseconds)
{
	u64 ticks = 0;
	for (u32 before = timer(); ticks < milliseconds * TICKS_PER_MS;) {
		u32 now = timer();
		ticks += (now - before) & TIMER_BITS;
		before = now;
	}
	return ticks;
}

NOINLINE void after_planted(u64 ticks)
{
	print("planted ");
	print_number(ticks);
	print(" ticks\r\n");
	for (u32 i = 0; i < 100; i++)
		timer();
}
