/* AArch64, QEMU's virt with highmem=off: the virtual timer of each vCPU behind a GICv2, and a PCI serial line in slot 1. */
#include "../agent.h"

#define DEVICE(physical) ((volatile u32 *)(VIRTUAL + UL(physical)))
#define DISTRIBUTOR DEVICE(0x08000000)
#define INTERFACE DEVICE(0x08010000)
#define SERIAL_CONFIG DEVICE(0x3f008000)        /* PCI configuration space of slot 1 */
#define PORTS 0x3eff0000ul                      /* where port 0 of the PCI bus is */
#define LINE 0x1000                             /* where we put the serial line */
#define TIMER 27                                /* the virtual timer's interrupt */

static volatile u8 *const line = (u8 *)(VIRTUAL + PORTS + LINE);

u64 now(void)
{
	u64 count;
	asm volatile("isb; mrs %0, cntvct_el0" : "=r"(count));
	return count;
}

u64 ticks_in_a_second(void)
{
	u64 hz;
	asm("mrs %0, cntfrq_el0" : "=r"(hz));
	return hz;
}

u8 line_in(int place)
{
	return line[place];
}

void line_out(int place, u8 value)
{
	line[place] = value;
}

void line_init(void)
{
	SERIAL_CONFIG[4] = LINE;                /* its ports, and that it may be asked there */
	SERIAL_CONFIG[1] = 1;
}

static void next_tick(u64 after)
{
	u64 next = after + ticks_in_a_second() / TIMER_HZ;
	asm volatile("msr cntv_cval_el0, %0; isb" ::"r"(next > now() ? next : now()));
}

/* Called by boot.S, with what was interrupted. */
void agent_timer(u64 ip, u64 sp, u64 fp, u64 lr)
{
	const struct uniprof_registers registers = { .ip = ip, .sp = sp, .fp = fp, .lr = lr };
	u32 interrupt = INTERFACE[0xc / 4];
	u64 vcpu, due;
	asm("mrs %0, mpidr_el1" : "=r"(vcpu));
	asm volatile("mrs %0, cntv_cval_el0" : "=r"(due));
	if ((interrupt & 0x3ff) == TIMER) {
		agent_interrupt(vcpu & 0xff, &registers);
		next_tick(due);
	}
	INTERFACE[0x10 / 4] = interrupt;
}

void agent_start(void)
{
	DISTRIBUTOR[0] = 1;
	DISTRIBUTOR[0x100 / 4] = 1 << TIMER;
	INTERFACE[4 / 4] = 0xff;
	INTERFACE[0] = 1;
	next_tick(now());
	asm volatile("msr cntv_ctl_el0, %0; isb; msr daifclr, #2" ::"r"(1ul));
}

const struct uniprof_stream *other_stream(void)
{
	return 0;
}
