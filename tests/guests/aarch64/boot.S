/* The test unikernel's ways in on AArch64 (QEMU's virt, a Xen domain), its page tables, and the ways from one stack to
 * another and to Xen. Linked in the upper half of the address space: TTBR1 translates it. */
#include "../guest.h"

#define PHYSICAL(symbol) symbol - VIRTUAL
#ifndef GRANULE_BITS
#define GRANULE_BITS 12
#endif
#if GRANULE_BITS == 12                   /* 48 bits and write-back in both halves */
#define TRANSLATION 0x1b5103510
#define TOP level0
#elif GRANULE_BITS == 14
#define TRANSLATION 0x17510b510
#define TOP level0
#else
#define TRANSLATION 0x1f5107510
#define TOP level1
#endif
#define BLOCK 0x705                      /* valid, normal memory, inner shareable, accessed */
#define PAGE 0x707
#define DEVICE 0x401
#define TABLE 3
#define TEXT_OFFSET 0x200000             /* into memory; guest.ld */
#define XEN_PAGES 0x39000000             /* GUEST_MAGIC_BASE of xen/include/public/arch-arm.h */

	.section .head, "ax"
	.globl _start
_start:                                  /* EL1, translation off; x0: the device tree, if Xen loaded us */
	b primary_start
	/* The rest of the header that Xen wants (Linux: Documentation/arm64/booting.rst). */
	.long 0
	.quad TEXT_OFFSET, image_end - _start
	.quad 2                          /* little-endian, pages of 4 KiB */
	.quad 0, 0, 0
	.ascii "ARM\x64"
	.long 0
primary_start:
	mov x20, xzr
	mov x21, x0
	b translate
	.globl secondary_start
secondary_start:                         /* x0: number of this vCPU */
	mov x20, x0
translate:
	adrp x1, TOP
	msr ttbr0_el1, x1                /* the lower half goes on being where we are */
	msr ttbr1_el1, x1
	mov x2, #0xff00                  /* memory type 0 is a device, 1 is normal */
	msr mair_el1, x2
	ldr x2, =TRANSLATION
	msr tcr_el1, x2
#ifdef PAC
	mrs x2, id_aa64isar1_el1
	ands x22, x2, #0xff0             /* APA, API: Xen 4.17 has no keys for its guests */
	beq 1f
	ldr x2, =0x0123456789abcdef
	msr apiakeylo_el1, x2
	msr apiakeyhi_el1, x2
	mov x22, #0x80000000             /* EnIA: return addresses are signed */
1:
#endif
	tlbi vmalle1
	dsb sy
	isb
	mrs x2, sctlr_el1
	mov x3, #0x1005                  /* translation, caches */
#ifdef PAC
	orr x3, x3, x22
#endif
	orr x2, x2, x3
	msr sctlr_el1, x2
	isb
	ldr x2, =upper
	br x2

	.text
upper:
	ldr x1, =vectors
	msr vbar_el1, x1
	ldr x1, =stacks + STACK_BYTES
	mov x2, #STACK_BYTES
	madd x1, x20, x2, x1
	mov sp, x1
	.globl vcpu_start
	.type vcpu_start, %function
vcpu_start:
	.cfi_startproc
	.cfi_undefined x30               /* the outermost frame */
	mov x29, xzr                     /* ends the frame-pointer chain */
	mov x30, xzr
	mov x0, x20
	mov x1, xzr
	cbnz x20, 1f
	mov x0, x21
	bl guest_main
1:	bl vcpu_main
	brk #0
	.cfi_endproc
	.size vcpu_start, . - vcpu_start

	/* run_on(stack_top, function, argument): calls the function on another stack. */
	.globl run_on
	.type run_on, %function
run_on:
	.cfi_startproc
	stp x29, x30, [sp, #-16]!
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov x29, sp
	.cfi_def_cfa x29, 16
	mov x3, x1
	ldp x4, x5, [x29]                /* so that a window of the new stack alone still unwinds */
	sub sp, x0, #16
	stp x4, x5, [sp]
	mov x0, x2
	blr x3
	mov sp, x29
	ldp x29, x30, [sp], #16
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size run_on, . - run_on

	/* psci(function, a, b, c): the firmware that QEMU or Xen plays. */
	.globl psci
	.type psci, %function
psci:
	.cfi_startproc
	hvc #0
	ret
	.cfi_endproc
	.size psci, . - psci

	/* hypercall(number, a, b, c) */
	.globl hypercall
	.type hypercall, %function
hypercall:
	.cfi_startproc
	mov x16, x0
	mov x0, x1
	mov x1, x2
	mov x2, x3
	hvc #0xea1                       /* XEN_HYPERCALL_TAG */
	ret
	.cfi_endproc
	.size hypercall, . - hypercall

	.balign 2048
vectors:
	.set at, 0
	.rept 16
	.balign 128
#ifdef AGENT
	.if at == 5                      /* an interrupt of this level's own code */
	b agent_entry
	.endif
#endif
	mrs x0, esr_el1
	mrs x1, elr_el1
	b fault
	.set at, at + 1
	.endr

#ifdef AGENT
agent_entry:
	sub sp, sp, #192
	stp x0, x1, [sp]
	stp x2, x3, [sp, #16]
	stp x4, x5, [sp, #32]
	stp x6, x7, [sp, #48]
	stp x8, x9, [sp, #64]
	stp x10, x11, [sp, #80]
	stp x12, x13, [sp, #96]
	stp x14, x15, [sp, #112]
	stp x16, x17, [sp, #128]
	stp x18, x29, [sp, #144]
	mrs x0, elr_el1
	mrs x1, spsr_el1
	stp x30, x0, [sp, #160]
	str x1, [sp, #176]
	add x1, sp, #192
	mov x2, x29
	mov x3, x30
	bl agent_timer
	ldr x1, [sp, #176]
	ldp x30, x0, [sp, #160]
	msr spsr_el1, x1
	msr elr_el1, x0
	ldp x18, x29, [sp, #144]
	ldp x16, x17, [sp, #128]
	ldp x14, x15, [sp, #112]
	ldp x12, x13, [sp, #96]
	ldp x10, x11, [sp, #80]
	ldp x8, x9, [sp, #64]
	ldp x6, x7, [sp, #48]
	ldp x4, x5, [sp, #32]
	ldp x2, x3, [sp, #16]
	ldp x0, x1, [sp]
	add sp, sp, #192
	eret
#endif

	/* A table each; what README.md says about larger pages and places outside memory is here. */
	.data
	.balign 1 << GRANULE_BITS
#if GRANULE_BITS == 12
level0:	.quad PHYSICAL(level1) + TABLE
	.fill 511, 8, 0
level1:	.quad PHYSICAL(level2_devices) + TABLE  /* 0 */
	.quad PHYSICAL(level2_fine) + TABLE     /* 1 GiB: memory, page by page at first */
	.quad 0x40000000 + BLOCK         /* 2 GiB: the same by a 1 GiB block */
	.quad PHYSICAL(level2_blocks) + TABLE   /* 3 GiB: the same by 2 MiB blocks */
	.quad PHYSICAL(level2_outside) + TABLE  /* 4 GiB: see OUTSIDE */
	.quad 0x1000000000 + TABLE       /* 5 GiB: a table outside memory */
	.fill 506, 8, 0
level2_devices:
	.set at, 0
	.rept 512                        /* all are devices but where Xen keeps the console's page */
	.quad at * 0x200000 + DEVICE - (BLOCK - DEVICE) * (at == (XEN_PAGES >> 21)) /* true is -1 */
	.set at, at + 1
	.endr
level2_fine:
	.set at, 0
	.rept 4
	.quad PHYSICAL(level3) + at * 4096 + TABLE
	.set at, at + 1
	.endr
	.rept 508
	.quad 0x40000000 + at * 0x200000 + BLOCK
	.set at, at + 1
	.endr
level2_blocks:
	.set at, 0
	.rept 512
	.quad 0x40000000 + at * 0x200000 + BLOCK
	.set at, at + 1
	.endr
level2_outside:
	.quad PHYSICAL(level3_outside) + TABLE
	.quad 0x1000000000 + TABLE
	.quad 0x1000000000 + BLOCK
	.fill 509, 8, 0
level3_outside:
	.quad 0x1000000000 + PAGE
	.fill 511, 8, 0
	.globl level3
level3:	.set at, 0
	.rept 2048
	.quad 0x40000000 + at * 4096 + PAGE
	.set at, at + 1
	.endr
#else
	/* The same places with larger granules, by blocks of 32 or 512 MiB; nothing is outside memory, and the first block
	 * of memory is page by page. */
#define TABLE_ENTRIES (1 << (GRANULE_BITS - 3))
#define BLOCK_BITS (2 * GRANULE_BITS - 3)
level0:	.quad PHYSICAL(level1) + TABLE
	.fill TABLE_ENTRIES - 1, 8, 0
level1:	.quad PHYSICAL(level2) + TABLE
	.fill TABLE_ENTRIES - 1, 8, 0
level2:	.set at, 0
	.rept TABLE_ENTRIES
	.if at == 0x40000000
	.quad PHYSICAL(level3) + TABLE
	.elseif at < 0x20000000
	.quad at + DEVICE
	.elseif at < 0x80000000
	.quad at + BLOCK
	.elseif at < 0xc0000000
	.quad at - 0x40000000 + BLOCK
	.elseif at < 0x100000000
	.quad at - 0x80000000 + BLOCK
	.else
	.quad 0
	.endif
	.set at, at + (1 << BLOCK_BITS)
	.endr
	.globl level3
level3:	.set at, 0
	.rept TABLE_ENTRIES
	.quad 0x40000000 + (at << GRANULE_BITS) + PAGE
	.set at, at + 1
	.endr
#endif

	.bss
	.balign 4096
	.globl stacks
stacks:	.skip STACK_BYTES * MAX_VCPUS
	.section .note.GNU-stack, "", %progbits
