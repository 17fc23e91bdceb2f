/* What the agent's guest needs of a processor and its machine: agent_timer.c, and the one of aarch64/. */
#pragma once
#include "guest.h"
#include "uniprof_agent.h"

/* Timer interrupts a second: each takes a guest of Xen, itself emulated, a fair part of a millisecond. */
#define TIMER_HZ (platform == BARE ? 500 : 200)

u64 now(void);                          /* ticks of the counter that all vCPUs have */
u64 ticks_in_a_second(void);
void line_init(void);                   /* finds the second serial line */
u8 line_in(int place);                  /* registers of its 16550 */
void line_out(int place, u8 value);

/* Called by each vCPU's timer interrupt. */
void agent_interrupt(u32 vcpu, const struct uniprof_registers *registers);

/* Instead of the second serial line, where there is none; 0 where there is. Made by the first call. */
const struct uniprof_stream *other_stream(void);

/* agent_xen.c */
extern const struct uniprof_stream vchan_stream;
void vchan_init(void);                  /* waits until someone says who the client is */
u64 xen_clock_hz(void);
void xen_start_timer(void);             /* of this vCPU; its events call agent_interrupt */
void xen_events(const struct uniprof_registers *interrupted);
