/* A 32-bit PV guest that spins: only there to be refused. */
#define NOTE(type, desc...) \
	.balign 4; .long 2f-1f, 4f-3f, type; 1: .asciz "Xen"; 2: .balign 4; 3: desc; 4: .balign 4
	.section .note.xen, "a", @note
	NOTE(6, .asciz "uniprof-test-32")
	NOTE(5, .asciz "xen-3.0")
	NOTE(8, .asciz "generic")
	NOTE(3, .long 0)
	NOTE(4, .long 0)
	NOTE(1, .long narrow_start)
	NOTE(9, .asciz "yes")            /* PAE_MODE */
	.text
	.globl narrow_start
narrow_start:
	pause
	jmp narrow_start
	.section .note.GNU-stack, "", @progbits
