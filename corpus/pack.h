/* A small packer: what pack.c asks of its library. */
#ifndef PACK_H
#define PACK_H
#include <stddef.h>

#define PACK_BLOCK 256

/* Packs `length` bytes (at most PACK_BLOCK) into `out`, which has room for twice as many; its length. */
size_t pack_block(const unsigned char *bytes, size_t length, unsigned char *out);
/* A checksum of what was packed. */
unsigned long pack_sum(const unsigned char *bytes, size_t length);

#endif
