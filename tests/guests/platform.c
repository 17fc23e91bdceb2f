/* One face for three platforms: Xen PV, Xen PVH, and a bare machine (QEMU). */
#include "guest.h"
#include "xen_abi.h"

enum platform platform;
const char *command_line = "";
struct start_info *start_info;
static volatile struct console_ring *ring;
static u32 console_port;
static volatile u32 *const local_apic = (u32 *)0xfee00000;
struct shared_info shared __attribute__((aligned(4096)));
static u64 idt[512] __attribute__((aligned(16)));

long hypercall(int number, u64 a, u64 b, u64 c)
{
	long result;
	register u64 r10 asm("r10") = 0;
	asm volatile("call *%[entry]"
		     : "=a"(result), "+D"(a), "+S"(b), "+d"(c), "+r"(r10)
		     : [entry] "r"((u64)hypercall_page + number * 32)
		     : "rcx", "r8", "r9", "r11", "memory");
	return result;
}

static void print_char(char c)
{
	if (platform == BARE) {
		while (!(inb(0x3fd) & 0x20))
			;
		outb(0x3f8, c);
		return;
	}
	while (ring->out_prod - ring->out_cons >= sizeof ring->out)
		hypercall(HYPERVISOR_sched_op, SCHEDOP_yield, 0, 0);
	ring->out[ring->out_prod & (sizeof ring->out - 1)] = c;
	asm volatile("" ::: "memory");
	ring->out_prod++;
}

void print(const char *text)
{
	while (*text)
		print_char(*text++);
	u32 send = console_port;
	if (platform != BARE)
		hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_send, (u64)&send, 0);
}

void print_number(u64 number)
{
	char digits[21], *at = digits + 20;
	*at = 0;
	do
		*--at = '0' + number % 10;
	while (number /= 10);
	print(at);
}

void fault(u64 first, u64 second)
{
	print("FAULT ");
	print_number(first);
	print(" ");
	print_number(second);
	print("\r\n");
	shut_down(3);
}

u64 machine_frame(u64 frame)
{
	return ((u64 *)start_info->mfn_list)[frame];
}

/* Where a PV guest sees one of its machine frames. */
void *machine_page(u64 machine)
{
	u64 frame = 0;
	while (frame < start_info->nr_pages && machine_frame(frame) != machine)
		frame++;
	return (void *)(frame << 12);
}

/* update_va_mapping for PV; present, writable, user, accessed, dirty. */
void pv_map(char *page, u64 machine_address)
{
	hypercall(HYPERVISOR_update_va_mapping, (u64)page, machine_address | 0x67, UVMF_INVLPG);
}

static void set_gate(int vector, char *entry)
{
	u64 address = (u64)entry;
	idt[2 * vector] = (address & 0xffff) | 8ul << 16 | 0x8eul << 40 | (address >> 16 & 0xffff) << 48;
	idt[2 * vector + 1] = address >> 32;
}

void load_idt(void)
{
	struct { u16 limit; u64 base; } __attribute__((packed)) pointer = { sizeof idt - 1, (u64)idt };
	asm volatile("lidt %0" ::"m"(pointer));
}

u64 hvm_param(u32 index)
{
	struct hvm_param param = { DOMID_SELF, 0, index, 0 };
	hypercall(HYPERVISOR_hvm_op, HVMOP_get_param, (u64)&param, 0);
	return param.value;
}

static void init_hvm(u32 info)
{
	u32 leaf[4];
	command_line = (char *)((struct hvm_start_info *)(u64)info)->cmdline;
	pages_init();
	for (int vector = 0; vector < 256; vector++)
		set_gate(vector, fault_entry);
	set_gate(TIMER_VECTOR, timer_entry);
#ifdef AGENT
	set_gate(AGENT_VECTOR, (char *)agent_timer);
#endif
	load_idt();
	cpuid(1, leaf);
	int hypervisor = leaf[2] >> 31;
	cpuid(0x40000000, leaf);
	if (!hypervisor || leaf[1] != 0x566e6558 || leaf[2] != 0x65584d4d || leaf[3] != 0x4d4d566e)
		return;                 /* not "XenVMMXenVMM": a bare machine */
	platform = XEN_PVH;
	cpuid(0x40000002, leaf);
	write_msr(leaf[1], (u64)hypercall_page);
	ring = (void *)(hvm_param(HVM_PARAM_CONSOLE_PFN) << 12);
	console_port = hvm_param(HVM_PARAM_CONSOLE_EVTCHN);
}

static void init_pv(void)
{
	platform = XEN_PV;
	command_line = (char *)start_info->cmd_line;
	console_port = start_info->console_evtchn;
	ring = machine_page(start_info->console_mfn);
	pv_map((char *)&shared, start_info->shared_info);
}

void platform_init(char *pv_info, u32 hvm_info)
{
	platform = BARE;
	start_info = (void *)pv_info;
	if (start_info)
		init_pv();
	else
		init_hvm(hvm_info);
}

static int start_pv_vcpu(int vcpu, u64 stack)
{
	static struct vcpu_guest_context context;
	context.flags = VGCF_in_kernel;         /* "online" would make VCPUOP_up forget to wake it */
	context.rip = (u64)vcpu_start;
	context.rsp = stack;
	context.rdi = vcpu;
	context.cs = FLAT_KERNEL_CS;
	context.ss = FLAT_KERNEL_SS;
	context.kernel_ss = FLAT_KERNEL_SS;
	context.kernel_sp = stack;
	context.ctrlreg[3] = machine_frame(start_info->pt_base >> 12) << 12;
	return hypercall(HYPERVISOR_vcpu_op, VCPUOP_initialise, vcpu, (u64)&context);
}

static int start_pvh_vcpu(int vcpu, u64 stack)
{
	static struct vcpu_hvm_context context;
	u64 cr0, cr4;
	asm volatile("mov %%cr0, %0" : "=r"(cr0));
	asm volatile("mov %%cr4, %0" : "=r"(cr4));
	context = (struct vcpu_hvm_context){
		.mode = 1, .rip = (u64)vcpu_start, .rsp = stack, .rdi = vcpu, .rflags = 2,
		.cr0 = cr0, .cr3 = (u64)page_map, .cr4 = cr4, .efer = read_msr(0xc0000080),
	};
	return hypercall(HYPERVISOR_vcpu_op, VCPUOP_initialise, vcpu, (u64)&context);
}

/* On a bare machine all processors answer the first INIT-SIPI at once and number themselves. */
static int start_bare_vcpu(int vcpu)
{
	static const char *const start = (char *)0x8000;
	if (vcpu != 1)
		return 0;
	for (char *from = trampoline; from < trampoline_end; from++)
		((volatile char *)start)[from - trampoline] = *from;
	local_apic[0x300 / 4] = 0xc4500;                /* INIT, all but this one */
	for (volatile int i = 0; i < 1000000; i++)
		;
	local_apic[0x300 / 4] = 0xc4600 | (u64)start >> 12;     /* SIPI */
	return 0;
}

int start_vcpu(int vcpu)
{
	u64 stack = (u64)stacks + (vcpu + 1) * STACK_BYTES;
	if (platform == BARE)
		return start_bare_vcpu(vcpu);
	int error = platform == XEN_PV ? start_pv_vcpu(vcpu, stack) : start_pvh_vcpu(vcpu, stack);
	return error ? error : hypercall(HYPERVISOR_vcpu_op, VCPUOP_up, vcpu, 0);
}

static void start_pv_timer(void)
{
	struct evtchn_bind_virq bind = { .virq = VIRQ_TIMER };
	u64 period = 80000000;          /* ns */
	hypercall(HYPERVISOR_set_callbacks, (u64)event_entry, (u64)failsafe_entry, 0);
	hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_bind_virq, (u64)&bind, 0);
	/* Never masked itself: an event that came then would stay pending, and no other would follow. */
	for (u32 i = 0; i < 64; i++)
		shared.evtchn_mask[i] = i == bind.port / 64 ? ~(1ul << bind.port % 64) : ~0ul;
	shared.vcpu_info[0].upcall_mask = 0;
	hypercall(HYPERVISOR_vcpu_op, VCPUOP_set_periodic_timer, 0, (u64)&period);
}

void start_timer(void)
{
	if (platform == XEN_PV) {
		start_pv_timer();
		return;
	}
	if (platform == BARE) {                         /* the firmware left the old controllers on */
		outb(0x21, 0xff);
		outb(0xa1, 0xff);
	}
	local_apic[0xf0 / 4] = 0x1ff;                   /* enabled */
	local_apic[0x3e0 / 4] = 0xb;                    /* divide by one */
	local_apic[0x320 / 4] = 0x20000 | TIMER_VECTOR; /* periodic */
	local_apic[0x380 / 4] = platform == BARE ? 80000000 : 8000000;
	asm volatile("sti");
}

void timer_acknowledge(void)
{
	if (platform != XEN_PV)
		local_apic[0xb0 / 4] = 0;
}

void timer_tick(void);

#ifndef AGENT
void pv_events(void)
{
	volatile struct vcpu_info *vcpu = &shared.vcpu_info[0];
	do {
		vcpu->upcall_mask = 1;
		vcpu->upcall_pending = 0;
		vcpu->pending_sel = 0;
		for (int i = 0; i < 64; i++)
			((volatile u64 *)shared.evtchn_pending)[i] = 0;
		timer_tick();
		vcpu->upcall_mask = 0;
	} while (vcpu->upcall_pending);
}
#endif

void block(void)
{
	if (platform == BARE)
		asm volatile("hlt");
	else
		hypercall(HYPERVISOR_sched_op, SCHEDOP_block, 0, 0);
}

void nap(int vcpu, u64 ns)
{
	struct vcpu_runstate_info state;
	if (platform == BARE || hypercall(HYPERVISOR_vcpu_op, VCPUOP_get_runstate_info, vcpu, (u64)&state))
		return;
	struct sched_poll poll = { .timeout = state.state_entry_time + ns };
	hypercall(HYPERVISOR_sched_op, SCHEDOP_poll, (u64)&poll, 0);
}

void shut_down(int reason)
{
	u32 shutdown = reason;
	if (platform != BARE)
		hypercall(HYPERVISOR_sched_op, SCHEDOP_shutdown, (u64)&shutdown, 0);
	outb(0xf4, reason);                             /* QEMU's isa-debug-exit */
	for (;;)
		asm volatile("cli; hlt");
}

void map_page(char *page, char *frame)
{
	if (platform == XEN_PV) {
		pv_map(page, machine_frame((u64)frame >> 12) << 12);
		return;
	}
	*page_entry(page) = (u64)frame | 7;
	asm volatile("invlpg (%0)" ::"r"(page) : "memory");
}
