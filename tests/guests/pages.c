/* Page tables of the PVH and bare platforms. Besides the identity map they hold the same memory
 * twice more, by larger pages, and a region whose entries point outside memory: a profiler has to
 * walk all of them. (Under PV the tables are Xen's and machine frames; see map_page.) */
#include "guest.h"

#define TABLE static u64 __attribute__((aligned(4096)))
#define PRESENT_WRITABLE_USER 7ul
#define LARGE 0x80ul

TABLE pdpt_identity[512], pdpt_1g[512], pdpt_2m[512], pdpt_outside[512];
TABLE pd_identity[4][512], pd_outside[512];
TABLE pt_low[4][512], pt_outside[512];	/* the first 8 MiB, page by page */

static void forget_translations(void)
{
	u64 root;
	asm volatile("mov %%cr3, %0; mov %0, %%cr3" : "=r"(root)::"memory");
}

void pages_init(void)
{
	u32 extended[4];
	cpuid(0x80000001, extended);
	for (u64 i = 0; i < 4; i++)
		pdpt_identity[i] = (u64)pd_identity[i] | PRESENT_WRITABLE_USER;
	for (u64 i = 0; i < 2048; i++) {
		pd_identity[i / 512][i % 512] = i << 21 | LARGE | PRESENT_WRITABLE_USER;
		pt_low[i / 512][i % 512] = i << 12 | PRESENT_WRITABLE_USER;
	}
	for (u64 i = 0; i < 512; i++)
		pdpt_1g[i] = extended[3] & 1 << 26 ? i << 30 | LARGE | PRESENT_WRITABLE_USER
						   : pdpt_identity[i & 3];
	pdpt_2m[0] = (u64)pd_identity[0] | PRESENT_WRITABLE_USER;

	/* Below OUTSIDE: a 4 KiB page, a page table, a 2 MiB page and a page directory beyond memory. */
	pt_outside[0] = 1ul << 36 | PRESENT_WRITABLE_USER;
	pd_outside[0] = (u64)pt_outside | PRESENT_WRITABLE_USER;
	pd_outside[1] = 1ul << 36 | PRESENT_WRITABLE_USER;
	pd_outside[2] = 1ul << 36 | LARGE | PRESENT_WRITABLE_USER;
	pdpt_outside[0] = (u64)pd_outside | PRESENT_WRITABLE_USER;
	pdpt_outside[1] = 1ul << 36 | PRESENT_WRITABLE_USER;

	page_map[ALIAS_1G >> 39 & 511] = (u64)pdpt_1g | PRESENT_WRITABLE_USER;
	page_map[ALIAS_2M >> 39] = (u64)pdpt_2m | PRESENT_WRITABLE_USER;
	page_map[OUTSIDE >> 39] = (u64)pdpt_outside | PRESENT_WRITABLE_USER;
	page_map[0] = (u64)pdpt_identity | PRESENT_WRITABLE_USER;
	forget_translations();
	for (u64 i = 0; i < 4; i++)
		pd_identity[0][i] = (u64)pt_low[i] | PRESENT_WRITABLE_USER;
	forget_translations();
}

/* The entry that maps a page of the first 8 MiB. */
u64 *page_entry(char *page)
{
	return &pt_low[(u64)page >> 21][(u64)page >> 12 & 511];
}
