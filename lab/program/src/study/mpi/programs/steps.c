// The calls of libfabric that a message costs, each between two marks, for the study to count their instructions step by
// step: one process with two endpoints. A mark is odd while a call runs, and says which.
//
//   steps PROVIDER BATCHES

#include "fabric.h"

#include <dlfcn.h>
#include <signal.h>

#define APART __attribute__((noinline))

enum { TAG = 7, ROOM = 8192, POSTED = 1 << 20, WARM = 300 };

// What is counted, in the order of the study's names. All of it once for each size.
enum call { INJECT, POST, READ_FULL, READ_EMPTY, POST_WAITING, SEND, READ_SENT, CALLS };

static const size_t sizes[] = {8, 512};

static volatile uint64_t mark;
static struct end ends[2];
static fi_addr_t addresses[2];
static unsigned char out[ROOM], in[ROOM];
static struct fi_context contexts[8];
static struct fi_cq_tagged_entry entries[8];
static int is_counted, size_at;

// Stops the process if it is traced, so that it is stepped from here on; otherwise without effect.
static inline void begin(enum call call) {
    if (!is_counted) return;
    kill(getpid(), SIGWINCH);
    mark = (uint64_t)(size_at * CALLS + call) << 1 | 1;
}

static inline void done(void) {
    if (is_counted) mark = 0;
}

#define COUNTED(call, text) \
    begin(call); \
    ssize_t result = text; \
    done(); \
    return result

static APART ssize_t inject(size_t bytes) {
    COUNTED(INJECT, fi_tinjectdata(ends[0].endpoint, out, bytes, 0, addresses[1], TAG));
}
static APART ssize_t post(void) {
    COUNTED(POST, fi_trecv(ends[1].endpoint, in, ROOM, 0, addresses[0], TAG, 0, &contexts[0]));
}
static APART ssize_t post_waiting(void) {
    COUNTED(POST_WAITING, fi_trecv(ends[1].endpoint, in, ROOM, 0, addresses[0], TAG, 0, &contexts[1]));
}
static APART ssize_t read_full(void) { COUNTED(READ_FULL, fi_cq_read(ends[1].queue, entries, 8)); }
static APART ssize_t read_empty(void) { COUNTED(READ_EMPTY, fi_cq_read(ends[1].queue, entries, 8)); }
static APART ssize_t read_sent(void) { COUNTED(READ_SENT, fi_cq_read(ends[0].queue, entries, 8)); }
static APART ssize_t send_one(size_t bytes) {
    COUNTED(SEND, fi_tsenddata(ends[0].endpoint, out, bytes, 0, 0, addresses[1], TAG, &contexts[2]));
}

// Reads until something is there. Not counted.
static void await(struct fid_cq *queue) {
    ssize_t count;
    while ((count = fi_cq_read(queue, entries, 8)) == -FI_EAGAIN) {}
    must(count, "fi_cq_read");
}

// The first message, until which a sender may have to do more than send.
static void meet(void) {
    MUST(post());
    MUST(inject(1));
    ssize_t count;
    do {
        count = fi_cq_read(ends[0].queue, entries, 8);
        if (count == -FI_EAGAIN) count = fi_cq_read(ends[1].queue, entries, 8);
    } while (count == -FI_EAGAIN);
    must(count, "fi_cq_read");
}

// The completion of a receive of a message that was sent before.
static void read_message(size_t bytes) {
    int was_counted = is_counted;
    // A message may need a look before it can be read: only one that is there is to be counted as such.
    if (read_full() != 1) {
        is_counted = 0;
        await(ends[1].queue);
        is_counted = was_counted;
        if (was_counted) FAIL("a message was not there at once");
    }
    if (entries[0].len != bytes || memcmp(in, out, bytes)) FAIL("a message arrived damaged");
}

static void batch(size_t bytes, unsigned number) {
    write_data(out, bytes, number);
    // Posted first, then sent.
    MUST(post());
    for (int at = 0; at < 3; at++)
        if (read_empty() != -FI_EAGAIN) FAIL("an empty queue is not empty");
    MUST(inject(bytes));
    read_message(bytes);
    // Sent first, and kept: the first read that meets it may leave it where it is.
    int was_counted = is_counted;
    is_counted = 0;
    write_data(out, bytes, number + 1);
    MUST(inject(bytes));
    read_empty();
    read_empty();
    is_counted = was_counted;
    MUST(post_waiting());
    is_counted = 0;
    await(ends[1].queue);
    if (entries[0].len != bytes || memcmp(in, out, bytes)) FAIL("a message that waited arrived damaged");
    // With a completion for the sender.
    MUST(post());
    is_counted = was_counted;
    MUST(send_one(bytes));
    if (read_sent() != 1) {
        is_counted = 0;
        await(ends[0].queue);
        is_counted = was_counted;
        if (was_counted) FAIL("a send had not ended");
    }
    is_counted = 0;
    await(ends[1].queue);
    is_counted = was_counted;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    open_domain(arguments[1]);
    for (int at = 0; at < 2; at++) open_end(&ends[at]);
    addresses[1] = address_of(&ends[0], ends[1].address);
    addresses[0] = address_of(&ends[1], ends[0].address);
    // Two receives that no message meets, as MPICH has them posted all the time.
    static unsigned char untagged[POSTED], tagged[POSTED];
    struct iovec all = {untagged, POSTED};
    struct fi_msg many = {.msg_iov = &all, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[3]};
    MUST(fi_recvmsg(ends[1].endpoint, &many, FI_MULTI_RECV | FI_COMPLETION));
    MUST(fi_trecv(ends[1].endpoint, tagged, POSTED, 0, FI_ADDR_UNSPEC, 1ull << 62, 0, &contexts[4]));
    meet();
    unsigned number = 0;
    for (size_at = 0; size_at < 2; size_at++)
        for (int at = 0; at < WARM; at++) batch(sizes[size_at], number++);
    // Where the mark lies, and the functions whose calls count as allocations.
    static const char *allocate[] = {"malloc", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign"};
    printf("%lx", (unsigned long)&mark);
    for (int at = 0; at < 6; at++) printf(" %lx", (unsigned long)dlsym(RTLD_DEFAULT, allocate[at]));
    printf("\n");
    fflush(stdout);
    if (getchar() == EOF) return 3;
    is_counted = 1;
    for (int at = atoi(arguments[2]); at > 0; at--)
        for (size_at = 0; size_at < 2; size_at++) batch(sizes[size_at], number++);
    is_counted = 0;
    // What is open ends with the process.
    _exit(0);
}
