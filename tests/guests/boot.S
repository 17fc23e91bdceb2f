/* The ways into the test unikernel: Xen PV in long mode, Xen PVH and QEMU in 32-bit protected mode,
 * further vCPUs; and the ways in and out of interrupts. */
#include "guest.h"

#ifdef FIVE_LEVELS
#define TOP_TABLE five_level_map
#define PAGING 0x1020                    /* LA57, PAE */
#else
#define TOP_TABLE page_map
#define PAGING 0x20                      /* PAE */
#endif

/* ELF notes for Xen's domain builder (xen/elfnote.h); QEMU reads the last one. */
#define NOTE(type, desc...) \
	.balign 4; .long 2f-1f, 4f-3f, type; 1: .asciz "Xen"; 2: .balign 4; 3: desc; 4: .balign 4
	.section .note.xen, "a", @note
	NOTE(6, .asciz "uniprof-test")   /* XEN_ELFNOTE_GUEST_OS */
	NOTE(5, .asciz "xen-3.0")        /* XEN_VERSION */
	NOTE(8, .asciz "generic")        /* LOADER */
	NOTE(3, .quad 0)                 /* VIRT_BASE */
	NOTE(4, .quad 0)                 /* PADDR_OFFSET */
	NOTE(1, .quad pv_start)          /* ENTRY */
	NOTE(2, .quad hypercall_page)    /* HYPERCALL_PAGE */
	NOTE(18, .long pvh_start)        /* PHYS32_ENTRY */

	.text
	.code64
	.globl pv_start
	.type pv_start, @function
pv_start:                                /* rsi: struct start_info */
	.cfi_startproc
	.cfi_undefined rip               /* the outermost frame */
	cld
	lea stacks+STACK_BYTES(%rip), %rsp
	xor %ebp, %ebp                   /* ends the frame-pointer chain */
	mov %rsi, %rdi
	xor %esi, %esi
	call guest_main
	ud2
	.cfi_endproc
	.size pv_start, . - pv_start

	.code32
	.globl pvh_start
	.type pvh_start, @function
pvh_start:                               /* ebx: struct hvm_start_info, paging off */
	cld
	mov $stacks+STACK_BYTES, %esp
	/* One table maps the first 4 GiB by 1 GiB or 2 MiB pages until pages_init makes finer ones. */
	mov $boot_pdpt, %edi
	mov $boot_pd+7, %eax
	mov $4, %ecx
1:	mov %eax, (%edi)
	add $8, %edi
	add $0x1000, %eax
	loop 1b
	mov $boot_pd, %edi
	mov $0x87, %eax                  /* present, writable, user, 2 MiB */
	mov $2048, %ecx
1:	mov %eax, (%edi)
	add $8, %edi
	add $0x200000, %eax
	loop 1b
	movl $boot_pdpt+7, page_map
	xor %ebp, %ebp                   /* vCPU 0 */
	jmp long_mode

	.globl ap_start32
ap_start32:                              /* QEMU's further processors, from the trampoline */
	mov $0x10, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	mov $1, %eax
	cpuid
	shr $24, %ebx
	mov %ebx, %ebp                   /* its local APIC's number is the vCPU's */
	mov %ebp, %eax
	inc %eax
	imul $STACK_BYTES, %eax
	lea stacks(%eax), %esp
long_mode:
	mov $TOP_TABLE, %eax
	mov %eax, %cr3
	mov %cr4, %eax
	or $PAGING, %eax
	mov %eax, %cr4
	mov $0xc0000080, %ecx            /* EFER */
	rdmsr
	or $0x100, %eax                  /* LME */
	wrmsr
	mov %cr0, %eax
	and $0x9fffffff, %eax            /* caches on */
	or $0x80000001, %eax             /* PG, PE */
	mov %eax, %cr0
	lgdt gdt_pointer
	ljmp $8, $1f
	.code64
1:	mov $0x10, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	mov %ebp, %edi
	test %edi, %edi
	jnz vcpu_start
	xor %edi, %edi
	mov %ebx, %esi
	xor %ebp, %ebp
	call guest_main
	ud2
	.size pvh_start, . - pvh_start

	.globl vcpu_start
	.type vcpu_start, @function
vcpu_start:                              /* edi: number of this vCPU, rsp: its stack, long mode */
	.cfi_startproc
	.cfi_undefined rip
	xor %ebp, %ebp
	and $-16, %rsp
	call vcpu_main
	ud2
	.cfi_endproc
	.size vcpu_start, . - vcpu_start

	/* Real-mode start of QEMU's further processors; copied to 0x8000. */
	.code16
	.globl trampoline, trampoline_end
trampoline:
	cli
	mov %cs, %ax
	mov %ax, %ds
	lgdtl (gdt_pointer_low - trampoline)
	mov %cr0, %eax
	or $1, %eax
	mov %eax, %cr0
	ljmpl $0x18, $ap_start32
	.balign 8
gdt_pointer_low:
	.word 31
	.long gdt
trampoline_end:

	.code64
	.macro SAVE
	push %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	mov %rsp, %rbp                   /* the handler's frames hang on the interrupted ones */
	.irp reg, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx
	push %\reg
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset \reg, 0
	.endr
	.endm
	.macro RESTORE
	.irp reg, rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rbp
	pop %\reg
	.cfi_adjust_cfa_offset -8
	.cfi_restore \reg
	.endr
	.endm

	.globl timer_entry
	.type timer_entry, @function
timer_entry:
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa rsp, 40
	.cfi_offset rip, -40
	.cfi_offset rsp, -16
	SAVE
	mov %rsp, %rbx                   /* the interrupted code's stack may be unaligned */
	and $-16, %rsp
	call timer_tick
	mov %rbx, %rsp
	RESTORE
	iretq
	.cfi_endproc
	.size timer_entry, . - timer_entry

	/* Xen PV's event upcall: rcx and r11 lie under the interrupt frame. */
	.globl event_entry
	.type event_entry, @function
event_entry:
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa rsp, 56
	.cfi_offset rip, -40
	.cfi_offset rsp, -16
	pop %rcx
	.cfi_adjust_cfa_offset -8
	pop %r11
	.cfi_adjust_cfa_offset -8
	orq $3, 8(%rsp)                  /* Xen shows kernel selectors as ring 0; iretq needs the truth */
	orq $3, 32(%rsp)
	SAVE
	mov %rbp, %rdi                   /* saved rbp, then rip, cs, flags, rsp, ss */
	mov %rsp, %rbx
	and $-16, %rsp
	call pv_events
	mov %rbx, %rsp
	RESTORE
	iretq
	.cfi_endproc
	.size event_entry, . - event_entry

	.globl failsafe_entry
failsafe_entry:
	ud2

	.globl fault_entry
fault_entry:
	mov (%rsp), %rdi
	mov 8(%rsp), %rsi
	and $-16, %rsp
	call fault
	ud2

	/* run_on(stack_top, function, argument): calls the function on another stack. */
	.globl run_on
	.type run_on, @function
run_on:
	.cfi_startproc
	push %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	mov %rdi, %rsp
	push 8(%rbp)                     /* the chain goes on across the two stacks */
	push (%rbp)
	mov %rbp, %rax
	push %rax
	push %rax
	mov %rdx, %rdi
	call *%rsi
	mov %rbp, %rsp
	pop %rbp
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc
	.size run_on, . - run_on

	.balign 4096
	.globl hypercall_page
	.type hypercall_page, @function
hypercall_page:
	.skip 4096
	.size hypercall_page, 4096

	.data
#ifdef FIVE_LEVELS
	.balign 4096
five_level_map:                          /* the four levels twice: the second time at ALIAS_5 */
	.quad page_map + 7, page_map + 7
	.fill 510, 8, 0
#endif
	.balign 8
gdt:	.quad 0
	.quad 0x00af9b000000ffff         /* 0x08: 64-bit code */
	.quad 0x00cf93000000ffff         /* 0x10: data */
	.quad 0x00cf9b000000ffff         /* 0x18: 32-bit code */
	.globl gdt_pointer
gdt_pointer:
	.word 31
	.quad gdt

	.bss
	.balign 4096
	.globl page_map
page_map: .skip 4096
boot_pdpt: .skip 4096
boot_pd: .skip 16384
	.globl stacks
stacks:	.skip STACK_BYTES * MAX_VCPUS
	.section .note.GNU-stack, "", @progbits
