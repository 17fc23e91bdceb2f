/* plant=N: before its work the guest spends N milliseconds in a phase of its own, by the ACPI timer of QEMU's q35,
 * which counts the guest's time: it stops while QEMU holds the guest. Under Xen, by the processor's time stamps, which
 * go on. What was counted is printed. */
#include "guest.h"

#define TIMER_PORT 0x608        /* where the firmware puts it */
#define TIMER_KHZ 3580          /* 3579.545 */
#define XEN_TIME_LEAF 0x40000003

static u32 timer(void)
{
	u32 value;
	if (platform == BARE)
		asm volatile("inl %1, %0" : "=a"(value) : "Nd"((u16)TIMER_PORT));
	else
		asm volatile("rdtsc; shrd $8, %%edx, %%eax" : "=a"(value)::"edx");
	return value & 0xffffff;
}

static u32 timer_khz(void)
{
	u32 out[4];
	if (platform == BARE)
		return TIMER_KHZ;
	if (platform == XEN_PVH)
		cpuid(XEN_TIME_LEAF, out);
	else                    /* with the prefix by which Xen emulates it */
		asm volatile(".byte 0x0f, 0x0b, 0x78, 0x65, 0x6e; cpuid"
			     : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(XEN_TIME_LEAF), "c"(0));
	return out[2] >> 8;
}

/* Time is counted from the first instruction on: what Xen emulates before, it may be long in coming back from. */
NOINLINE static u64 planted(u64 end)
{
	u64 ticks = 0;
	for (u32 before = timer(); ticks < end;) {
		u32 now = timer();
		ticks += (now - before) & 0xffffff;
		before = now;
	}
	return ticks;
}

NOINLINE static void after_planted(u64 ticks)
{
	print("planted ");
	print_number(ticks);
	print(" ticks of ");
	print_number(timer_khz());
	print(" kHz\r\n");
	for (u32 i = 0; i < 100; i++)
		timer();
}

void plant(u64 milliseconds)
{
	after_planted(planted(milliseconds * timer_khz()));
}
