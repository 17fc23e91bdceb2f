/* AArch64: a bare machine (QEMU's virt, with its serial port), or a Xen domain with its console. Both have a device
 * tree and power firmware. */
#include "../guest.h"
#include "../xen_abi.h"

#define MEMORY 0x40000000ul             /* begins here; QEMU puts the device tree there */
#define SERIAL ((volatile u32 *)(VIRTUAL + 0x09000000))   /* PL011: data at 0, flags at 0x18 */
#define SERIAL_FULL 0x20
#define PSCI_CPU_ON 0xc4000003
#define PSCI_SYSTEM_OFF 0x84000008
#define PSCI_SYSTEM_RESET 0x84000009

enum platform platform = BARE;
const char *command_line = "";
extern char secondary_start[];
extern u64 level3[];
long psci(u64 function, u64 a, u64 b, u64 c);
long hypercall(u64 number, u64 a, u64 b, u64 c);
static volatile struct console_ring *ring;
static u32 console_port;

static void print_on_ring(const char *text)
{
	u32 at = ring->out_prod;
	for (; *text; text++) {
		while (at - ring->out_cons >= sizeof ring->out)
			;
		ring->out[at++ % sizeof ring->out] = *text;
	}
	asm volatile("dmb sy" ::: "memory");
	ring->out_prod = at;
	hypercall(HYPERVISOR_event_channel_op, EVTCHNOP_send, (u64)&console_port, 0);
}

void print(const char *text)
{
	if (ring) {
		print_on_ring(text);
		return;
	}
	for (; *text; text++) {
		while (SERIAL[0x18 / 4] & SERIAL_FULL)
			;
		SERIAL[0] = *text;
	}
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

void fault(u64 syndrome, u64 address)
{
	print("FAULT ");
	print_number(syndrome);
	print(" ");
	print_number(address);
	print("\r\n");
	shut_down(3);
}

static u32 big_endian(const u8 *at)
{
	return (u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static int begins(const char *text, const char *start)
{
	while (*start && *text == *start)
		text++, start++;
	return !*start;
}

/* The first property of that name whose value begins so (Devicetree Specification, chapter 5), or 0. */
static const char *find(const u8 *tree, const char *name, const char *start)
{
	const u8 *at = tree + big_endian(tree + 8);
	const char *names = (char *)tree + big_endian(tree + 12);
	if (big_endian(tree) != 0xd00dfeed)
		return 0;
	for (;;) {
		u32 token = big_endian(at);
		at += 4;
		if (token == 1) {                       /* a node begins: its name */
			while (*at)
				at++;
			at = (u8 *)((u64)(at + 4) & ~3ul);
		} else if (token == 3) {                /* a property: length, name, value */
			u32 length = big_endian(at);
			const char *value = (char *)at + 8;
			if (begins(names + big_endian(at + 4), name) && begins(value, start))
				return value;
			at = (u8 *)((u64)(at + 8 + length + 3) & ~3ul);
		} else if (token == 9) {
			return 0;
		}
	}
}

static u64 hvm_param(u32 index)
{
	struct hvm_param param = { .domid = DOMID_SELF, .index = index };
	hypercall(HYPERVISOR_hvm_op, HVMOP_get_param, (u64)&param, 0);
	return param.value;
}

/* Where the device tree is tells nobody on a bare machine. */
void platform_init(char *device_tree, u32 unused_hvm)
{
	const u8 *tree = (u8 *)VIRTUAL + (device_tree ? (u64)device_tree : MEMORY);
	(void)unused_hvm;
	if (find(tree, "compatible", "xen,xen-")) {
		platform = XEN_PVH;
		console_port = hvm_param(HVM_PARAM_CONSOLE_EVTCHN);
		ring = (void *)(VIRTUAL + (hvm_param(HVM_PARAM_CONSOLE_PFN) << 12));
	}
	const char *found = find(tree, "bootargs", "");
	if (found)
		command_line = found;
}

int start_vcpu(int vcpu)
{
	return (int)psci(PSCI_CPU_ON, vcpu, (u64)secondary_start - VIRTUAL, vcpu);
}

void start_timer(void)
{
	print("this machine has no timer yet\r\n");
}

void timer_acknowledge(void)
{
}

void nap(int vcpu, u64 ns)              /* naps: an x86-64 guest of Xen's alone */
{
	(void)vcpu, (void)ns;
}

void block(void)
{
	asm volatile("wfi");
}

void shut_down(int reason)
{
	u32 shutdown = reason;
	if (platform == XEN_PVH)
		hypercall(HYPERVISOR_sched_op, SCHEDOP_shutdown, (u64)&shutdown, 0);
	psci(reason == 1 ? PSCI_SYSTEM_RESET : PSCI_SYSTEM_OFF, 0, 0, 0);
	for (;;)
		;
}

void map_page(char *page, char *frame)
{
	u64 physical = (u64)frame - VIRTUAL;
	volatile u64 *entry = &level3[((u64)page - VIRTUAL - MEMORY) >> 12];
	*entry = 0;
	asm volatile("dsb sy; tlbi vmalle1is; dsb sy; isb" ::: "memory");
	*entry = physical | 0x707;
	asm volatile("dsb sy; isb" ::: "memory");
}
