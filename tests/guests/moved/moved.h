/* What loader, kernel and application agree on. */
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
#define NOINLINE __attribute__((noinline))
#define KEEP_FRAME asm volatile("" ::"r"(__builtin_frame_address(0)))

struct kernel {
	volatile u64 *progress;          /* iterations so far */
	void (*serve)(struct kernel *kernel, u64 units);
};
