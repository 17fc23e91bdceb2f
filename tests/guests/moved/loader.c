/* Puts kernel and application, which QEMU left in memory as the files they are, at places drawn at each
 * boot, as Nanos and kernels with KASLR do; says on the console where. */
#include "moved.h"

#define FILES 0x2000000ul                /* where QEMU puts the kernel's file; the application's: */
#define FILE_BYTES 0x100000ul            /* so many bytes behind it */

struct header {
	u8 ident[16];
	u16 type, machine;
	u32 version;
	u64 entry, headers, sections;
	u32 flags;
	u16 bytes, header_bytes, header_count, section_bytes, section_count, names;
};
struct segment {
	u32 type, flags;
	u64 offset, address, physical, file_bytes, memory_bytes, align;
};

extern u64 page_map[512];
volatile u64 progress[8] __attribute__((aligned(64)));
static u64 tables[64][512] __attribute__((aligned(4096)));
static u64 tables_used, pages_used;
static u8 pages[256][4096] __attribute__((aligned(4096)));

static void print(const char *text)
{
	for (; *text; text++)
		asm volatile("outb %0, %1" ::"a"(*text), "Nd"((u16)0x3f8));
}

static void print_number(u64 number)
{
	char digit[2] = "";
	for (int shift = 60; shift >= 0; shift -= 4) {
		digit[0] = "0123456789abcdef"[number >> shift & 15];
		print(digit);
	}
}

static u64 draw(void)
{
	static u64 state;
	u32 low, high;
	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	state = (state ^ low ^ (u64)high << 32) * 0x9e3779b97f4a7c15;
	return state ^ state >> 29;
}

/* The page at an address, made if there is none. */
static u8 *page_at(u64 address)
{
	u64 *table = page_map;
	for (int shift = 39; shift > 12; shift -= 9) {
		u64 *entry = &table[address >> shift & 511];
		if (!*entry)
			*entry = (u64)tables[tables_used++] | 7;
		table = (u64 *)(*entry & ~0xffful);
	}
	u64 *entry = &table[address >> 12 & 511];
	if (!*entry)
		*entry = (u64)pages[pages_used++] | 7;
	return (u8 *)(*entry & ~0xffful);
}

static void (*load(const char *name, u64 file, u64 bias))(struct kernel *)
{
	struct header *header = (struct header *)file;
	struct segment *segment = (struct segment *)(file + header->headers);
	for (int number = 0; number < header->header_count; number++, segment++) {
		if (segment->type != 1)
			continue;
		for (u64 at = 0; at < segment->memory_bytes; at++) {
			u64 address = segment->address + bias + at;
			u8 byte = at < segment->file_bytes ? ((u8 *)file)[segment->offset + at] : 0;
			page_at(address)[address & 4095] = byte;
		}
	}
	print(name);
	print(" at 0x");
	print_number(bias);
	print("\n");
	return (void (*)(struct kernel *))(header->entry + bias);
}

void loader_main(void)
{
	static struct kernel kernel = { .progress = progress };
	u64 kernel_bias = 0xffffffff80000000 + draw() % 400 * 0x200000;
	u64 app_bias = 0x8000000000 + draw() % 0x8000000 * 0x1000;
	void (*enter_kernel)(struct kernel *) = load("kernel", FILES, kernel_bias);
	void (*enter_app)(struct kernel *) = load("application", FILES + FILE_BYTES, app_bias);
	enter_kernel(&kernel);
	enter_app(&kernel);
}
