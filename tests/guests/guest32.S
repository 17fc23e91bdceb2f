/* A guest that spins in 32-bit mode: only there to be refused. It boots as PVH; Debian's Xen is built
 * without 32-bit PV guests. */
#define NOTE(type, desc...) \
	.balign 4; .long 2f-1f, 4f-3f, type; 1: .asciz "Xen"; 2: .balign 4; 3: desc; 4: .balign 4
	.section .note.xen, "a", @note
	NOTE(6, .asciz "uniprof-test-32")
	NOTE(5, .asciz "xen-3.0")
	NOTE(8, .asciz "generic")
	NOTE(18, .long narrow_start)     /* PHYS32_ENTRY */
	.text
	.globl narrow_start
narrow_start:
	pause
	jmp narrow_start
	.section .note.GNU-stack, "", @progbits
