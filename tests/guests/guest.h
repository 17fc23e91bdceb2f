/* What the parts of the test unikernel agree on. README.md says what it is for. */
#pragma once
#ifdef __ASSEMBLER__
#define UL(x) x
#else
#define UL(x) x##ul
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
#define NOINLINE __attribute__((noinline))
#endif

#define MAX_VCPUS 8
#define STACK_BYTES 32768
#define TIMER_VECTOR 0x40
#define AGENT_VECTOR 0x41
#ifdef __aarch64__
#define IMAGE_TEXT_OFFSET 0x10000       /* of image_text in the file: guest.ld */
#define VIRTUAL UL(0xffff000000000000)  /* where physical 0 is; see aarch64/boot.S */
#define ALIAS_1G UL(0x40000000)
#define ALIAS_2M UL(0x80000000)
#define OUTSIDE (VIRTUAL + UL(0x100000000))
#else
#define IMAGE_TEXT_OFFSET 0x1000
#ifdef FIVE_LEVELS
#define ALIAS_5 UL(0x1000000000000) /* all of it again, where only five levels lead */
#else
#define ALIAS_5 UL(0)
#endif
#define ALIAS_1G (ALIAS_5 + UL(0x8000000000)) /* all of low memory again, by 1 GiB pages (not under PV) */
#define ALIAS_2M UL(0x10000000000)  /* the first GiB again, by 2 MiB pages (not under PV) */
#define OUTSIDE UL(0x18000000000)   /* entries that point outside memory (not under PV) */
#endif

#ifndef __ASSEMBLER__
enum platform { XEN_PV, XEN_PVH, BARE };

/* platform.c */
extern enum platform platform;
extern const char *command_line;
void platform_init(char *start_info, u32 hvm_start_info);
void print(const char *text);
void print_number(u64 number);
int start_vcpu(int vcpu);               /* 0: it runs; else there is no such vCPU */
void start_timer(void);                 /* vCPU 0 then gets TIMER_VECTOR every 80 ms */
void block(void);                       /* this vCPU sleeps; may return early */
void nap(int vcpu, u64 ns);             /* it sleeps for so long since it last began to run, as a guest of Xen on x86-64 */
void shut_down(int reason);             /* SCHEDOP_shutdown's: 0 power off, 1 reboot, 3 crash */
void map_page(char *page, char *frame); /* the page shows what lies at address frame */
void timer_acknowledge(void);
void load_idt(void);
void fault(u64 first, u64 second);

/* agent.c, in guest-agent.elf alone */
void agent_init(u32 vcpus);
void agent_start(void);                 /* this vCPU's timer calls the agent from now on */
void agent_timer();                     /* an entry of the table of interrupts, or called by one */

/* pages.c */
void pages_init(void);
u64 *page_entry(char *page);

/* boot.S */
extern char hypercall_page[], vcpu_start[], trampoline[], trampoline_end[], timer_entry[],
	fault_entry[], event_entry[], failsafe_entry[], stacks[], image_end[];
extern u64 page_map[512];
void run_on(char *stack_top, void (*function)(u64), u64 argument);

/* work.c */
extern volatile u64 progress[MAX_VCPUS][8];
void vcpu_main(int vcpu) __attribute__((noreturn));
void burn(volatile u64 *counter, u64 units);

#ifdef __x86_64__
/* exits.c */
void exits_round(int vcpu, u64 rest, int halts);
void plant(u64 milliseconds);

/* platform.c, for guests of Xen */
long hypercall(int number, u64 a, u64 b, u64 c);
u64 machine_frame(u64 frame);
void *machine_page(u64 machine);        /* where a PV guest sees one of its machine frames */
void pv_map(char *page, u64 machine_address);
u64 hvm_param(u32 index);

static inline u64 read_msr(u32 msr)
{
	u32 low, high;
	asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
	return (u64)high << 32 | low;
}

static inline u64 ticks(void)           /* of the time-stamp counter */
{
	u32 low, high;
	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
}

static inline void write_msr(u32 msr, u64 value)
{
	asm volatile("wrmsr" ::"c"(msr), "a"((u32)value), "d"((u32)(value >> 32)));
}

static inline void cpuid(u32 leaf, u32 out[4])
{
	asm volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3])
		     : "a"(leaf), "c"(0));
}

static inline void outb(u16 port, u8 value)
{
	asm volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}

static inline u8 inb(u16 port)
{
	u8 value;
	asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}
#endif
#endif
