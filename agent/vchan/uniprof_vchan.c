/* The server's side of Xen's vchan (docs/agent-protocol.md, section 7). The client shares the pages and is not trusted:
 * its positions are read once and compared with the rings' sizes, and ours are kept here. */
#include "uniprof_vchan.h"

/* The first page. Of the orders, 10 is a ring of 1 KiB at 1024 in it: what the client says, which is little. */
struct first {
	uint32_t left_read, left_written, right_read, right_written;
	uint16_t left_order, right_order;
	uint8_t client_lives, server_lives;
	uint8_t server_wants, client_wants;     /* to be told of what the other side does */
	uint32_t references[];
};
enum { WRITTEN = 1, READ = 2, LEFT_ORDER = 10, LEFT_BYTES = 1 << LEFT_ORDER, PAGE_ORDER = 12, MOST_RING_PAGES = 128 };
_Static_assert(sizeof(struct first) == 24, "layout");
_Static_assert(sizeof(struct first) + MOST_RING_PAGES * 4 <= LEFT_BYTES, "the references end before the ring");

static struct first *first_of(const struct uniprof_vchan *vchan)
{
	return (struct first *)vchan->first;
}

/* All that the other side wrote before it is seen after it, and the other way round. */
static uint32_t position(const uint32_t *at)
{
	return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static void set_position(uint32_t *at, uint32_t value)
{
	__atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}

static void tell(struct uniprof_vchan *vchan, uint8_t what)
{
	uint8_t wanted = __atomic_fetch_and(&first_of(vchan)->client_wants, (uint8_t)~what, __ATOMIC_SEQ_CST);
	if (wanted & what)
		vchan->guest->notify(vchan->port);
}

static const char *decimal(uint32_t number, char digits[11])
{
	char *at = digits + 10;
	*at = 0;
	do
		*--at = '0' + number % 10;
	while (number /= 10);
	return at;
}

int uniprof_vchan_init(struct uniprof_vchan *vchan, const struct uniprof_vchan_guest *guest, void *pages,
		       uint32_t count)
{
	uint8_t *page = pages;
	uint32_t order = PAGE_ORDER;
	char digits[11];
	if (count < 2 || (count - 1) & (count - 2) || count - 1 > MOST_RING_PAGES)
		return -1;
	while (1u << (order - PAGE_ORDER) < count - 1)
		order++;
	*vchan = (struct uniprof_vchan){ .first = page, .ring = page + UNIPROF_VCHAN_PAGE, .guest = guest,
					 .size = 1u << order };
	struct first *first = first_of(vchan);
	int64_t reference = 0;
	/* The first page last: its reference is the one that is published. */
	for (uint32_t at = count; at--;) {
		reference = guest->grant(guest->client, page + at * UNIPROF_VCHAN_PAGE);
		if (reference < 0)
			return -2;
		if (at)
			first->references[at - 1] = (uint32_t)reference;
	}
	first->left_order = LEFT_ORDER;
	first->right_order = (uint16_t)order;
	first->client_lives = 2;
	first->server_lives = 1;
	int64_t port = guest->offer(guest->client);
	if (port < 0)
		return -3;
	vchan->port = (uint32_t)port;
	if (guest->publish(guest->client, "ring-ref", decimal((uint32_t)reference, digits)) ||
	    guest->publish(guest->client, "event-channel", decimal(vchan->port, digits)))
		return -4;
	return 0;
}

/* Whether a client is there; -1 once it has gone. What it left unread is for nobody: clients pass over it. */
static int attached(struct uniprof_vchan *vchan)
{
	struct first *first = first_of(vchan);
	int is_there = __atomic_load_n(&first->client_lives, __ATOMIC_SEQ_CST) == 1;
	if (vchan->is_attached && !is_there) {
		vchan->is_attached = 0;
		return -1;
	}
	vchan->is_attached = (uint8_t)is_there;
	return is_there;
}

int64_t uniprof_vchan_read(void *context, uint8_t *into, uint64_t bytes)
{
	struct uniprof_vchan *vchan = context;
	struct first *first = first_of(vchan);
	__atomic_fetch_or(&first->server_wants, WRITTEN, __ATOMIC_SEQ_CST);
	/* Before the look whether it is there, or what a client says first might be passed over. */
	uint32_t written = position(&first->left_written), waiting = written - vchan->read;
	int state = attached(vchan);
	/* What is left of a client that has gone, or written by one that lies: none of it was said. */
	if (state < 1 || waiting > LEFT_BYTES) {
		vchan->read = written;
		set_position(&first->left_read, written);
		return state < 1 ? state : 0;
	}
	uint64_t count = waiting < bytes ? waiting : bytes;
	const volatile uint8_t *ring = vchan->first + LEFT_BYTES;
	for (uint64_t i = 0; i < count; i++)
		into[i] = ring[(vchan->read + i) & (LEFT_BYTES - 1)];
	if (count) {
		vchan->read += (uint32_t)count;
		set_position(&first->left_read, vchan->read);
		tell(vchan, READ);
	}
	return (int64_t)count;
}

int64_t uniprof_vchan_write(void *context, const uint8_t *from, uint64_t bytes)
{
	struct uniprof_vchan *vchan = context;
	struct first *first = first_of(vchan);
	/* That it has gone is told by read. */
	if (__atomic_load_n(&first->client_lives, __ATOMIC_SEQ_CST) != 1)
		return 0;
	__atomic_fetch_or(&first->server_wants, READ, __ATOMIC_SEQ_CST);
	uint32_t waiting = vchan->written - position(&first->right_read);
	if (waiting > vchan->size)
		return 0;       /* it says that it has read what was not written: its own loss */
	uint64_t room = vchan->size - waiting, count = room < bytes ? room : bytes;
	volatile uint8_t *ring = vchan->ring;
	for (uint64_t i = 0; i < count; i++)
		ring[(vchan->written + i) & (vchan->size - 1)] = from[i];
	if (count) {
		vchan->written += (uint32_t)count;
		set_position(&first->right_written, vchan->written);
		tell(vchan, WRITTEN);
	}
	return (int64_t)count;
}
