/* A bare AArch64 machine: QEMU's virt, with its serial port, device tree and power firmware. */
#include "../guest.h"

#define DEVICE_TREE ((u8 *)(VIRTUAL + 0x40000000))
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

void print(const char *text)
{
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

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* The first property called bootargs (Devicetree Specification, chapter 5). */
static const char *find_bootargs(const u8 *tree)
{
	const u8 *at = tree + big_endian(tree + 8);
	const char *names = (char *)tree + big_endian(tree + 12);
	if (big_endian(tree) != 0xd00dfeed)
		return "";
	for (;;) {
		u32 token = big_endian(at);
		at += 4;
		if (token == 1) {                       /* a node begins: its name */
			while (*at)
				at++;
			at = (u8 *)((u64)(at + 4) & ~3ul);
		} else if (token == 3) {                /* a property: length, name, value */
			u32 length = big_endian(at);
			if (same(names + big_endian(at + 4), "bootargs"))
				return (char *)at + 8;
			at = (u8 *)((u64)(at + 8 + length + 3) & ~3ul);
		} else if (token == 9) {
			return "";
		}
	}
}

void platform_init(char *unused_pv, u32 unused_hvm)
{
	(void)unused_pv, (void)unused_hvm;
	command_line = find_bootargs(DEVICE_TREE);
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

void block(void)
{
	asm volatile("wfi");
}

void shut_down(int reason)
{
	psci(reason == 1 ? PSCI_SYSTEM_RESET : PSCI_SYSTEM_OFF, 0, 0, 0);
	for (;;)
		;
}

void map_page(char *page, char *frame)
{
	u64 physical = (u64)frame - VIRTUAL;
	volatile u64 *entry = &level3[((u64)page - VIRTUAL - 0x40000000) >> 12];
	*entry = 0;
	asm volatile("dsb sy; tlbi vmalle1is; dsb sy; isb" ::: "memory");
	*entry = physical | 0x707;
	asm volatile("dsb sy; isb" ::: "memory");
}
