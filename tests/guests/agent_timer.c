/* x86-64: the local APIC's timer, and the second of a PC's serial lines; agent_xen.c has what guests of Xen have. */
#include "agent.h"

#define LINE 0x2f8

static volatile u32 *const local_apic = (u32 *)0xfee00000;

u64 now(void)
{
	u32 low, high;
	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

/* By the local timer, which has a billion. */
u64 ticks_in_a_second(void)
{
	const u32 ticks = 50000000;
	if (platform != BARE)
		return xen_clock_hz();
	local_apic[0xf0 / 4] = 0x1ff;
	local_apic[0x3e0 / 4] = 0xb;
	local_apic[0x320 / 4] = 0x10000;
	local_apic[0x380 / 4] = ~0u;
	u64 began = now();
	while (~0u - local_apic[0x390 / 4] < ticks)
		;
	return (now() - began) * 20;
}

u8 line_in(int place)
{
	return inb(LINE + place);
}

void line_out(int place, u8 value)
{
	outb(LINE + place, value);
}

void line_init(void)
{
	outb(0x21, 0xff);               /* nothing of the old interrupt controllers */
	outb(0xa1, 0xff);
}

struct frame { u64 ip, cs, flags, sp, ss; };

__attribute__((interrupt)) void agent_timer(struct frame *frame)
{
	const struct uniprof_registers registers = {
		.ip = frame->ip, .sp = frame->sp, .fp = *(u64 *)__builtin_frame_address(0),
	};
	if (platform == XEN_PVH) {
		xen_events(&registers);
		return;
	}
	agent_interrupt(local_apic[0x20 / 4] >> 24, &registers);
	local_apic[0xb0 / 4] = 0;
}

/* Xen starts further vCPUs in long mode without a table of segments, and so without one that iret may return to. */
static void load_segments(void)
{
	asm volatile("lgdt gdt_pointer\n\tpush $8\n\tlea 1f(%%rip), %%rax\n\tpush %%rax\n\tlretq\n"
		     "1:\tmov $0x10, %%eax\n\tmov %%eax, %%ds\n\tmov %%eax, %%es\n\tmov %%eax, %%ss" ::: "rax", "memory");
}

const struct uniprof_stream *other_stream(void)
{
	static int is_made;
	if (platform == BARE)
		return 0;
	if (!is_made++)
		vchan_init();
	return &vchan_stream;
}

void agent_start(void)
{
	if (platform == XEN_PV) {
		xen_start_timer();
		return;
	}
	load_segments();
	load_idt();
	if (platform == XEN_PVH) {
		xen_start_timer();
		asm volatile("sti");
		return;
	}
	local_apic[0xf0 / 4] = 0x1ff;
	local_apic[0x3e0 / 4] = 0xb;
	local_apic[0x320 / 4] = 0x20000 | AGENT_VECTOR;
	local_apic[0x380 / 4] = 1000000000 / TIMER_HZ;
	asm volatile("sti");
}
