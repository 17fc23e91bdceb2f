/* What the agent's guest needs of a processor and its machine: agent_timer.c, and the one of aarch64/. */
#pragma once
#include "guest.h"
#include "uniprof_agent.h"

#define TIMER_HZ 500

u64 now(void);                          /* ticks of the counter that all vCPUs have */
u64 ticks_in_a_second(void);
void line_init(void);                   /* finds the second serial line */
u8 line_in(int place);                  /* registers of its 16550 */
void line_out(int place, u8 value);

/* Called by each vCPU's timer interrupt. */
void agent_interrupt(u32 vcpu, const struct uniprof_registers *registers);
