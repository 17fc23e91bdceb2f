/* QEMU's -kernel enters here by the PVH note, in 32-bit protected mode; leaves in long mode, with the
 * first GiB mapped where it is. */
	.section .note.xen, "a", @note
	.balign 4
	.long 4, 4, 18                   /* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz "Xen"
	.long pvh_start

	.text
	.code32
	.globl pvh_start
	.type pvh_start, @function
pvh_start:
	cld
	mov $stack_top, %esp
	movl $pdpt+7, page_map
	movl $pd+7, pdpt
	mov $pd, %edi
	mov $0x87, %eax                  /* present, writable, user, 2 MiB */
	mov $512, %ecx
1:	mov %eax, (%edi)
	add $8, %edi
	add $0x200000, %eax
	loop 1b
	mov $page_map, %eax
	mov %eax, %cr3
	mov %cr4, %eax
	or $0x20, %eax                   /* PAE */
	mov %eax, %cr4
	mov $0xc0000080, %ecx            /* EFER */
	rdmsr
	or $0x100, %eax                  /* LME */
	wrmsr
	mov %cr0, %eax
	or $0x80000001, %eax             /* PG, PE */
	mov %eax, %cr0
	lgdt gdt_pointer
	ljmp $8, $1f
	.code64
1:	mov $0x10, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	xor %ebp, %ebp
	call loader_main
	ud2
	.size pvh_start, . - pvh_start

	.data
	.balign 8
gdt:	.quad 0
	.quad 0x00af9b000000ffff         /* 0x08: 64-bit code */
	.quad 0x00cf93000000ffff         /* 0x10: data */
gdt_pointer:
	.word 23
	.quad gdt

	.bss
	.balign 4096
	.globl page_map
page_map: .skip 4096
pdpt:	.skip 4096
pd:	.skip 4096
	.skip 65536
stack_top:
	.section .note.GNU-stack, "", @progbits
