/* A guest that spins in AArch32: only there to be refused. Its header is that of a zImage for 32-bit Arm (Linux,
 * Documentation/arch/arm/booting.rst), by which Xen knows the mode. */
	.text
	.globl zimage
zimage:
	.rept 8
	.long 0xe1a00000        /* mov r0, r0 */
	.endr
	.long 0xea000002        /* b narrow_start */
	.long 0x016f2818, 0, end - zimage
narrow_start:
	.long 0xeafffffe        /* b narrow_start */
end:
