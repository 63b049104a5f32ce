// Measures a provider of libfabric by the calls that an MPI makes for a message: `fi_tinjectdata` or, for a long one,
// `fi_tsenddata`; `fi_trecv`; `fi_cq_read`. Two processes.
//
//   direct SOCKET LINES PROVIDER

#include "fabric.h"
#include "line.h"

#include <sys/prctl.h>
#include <signal.h>

enum { TAG = 42, WINDOW_MAX = 64, CONTEXTS = WINDOW_MAX + 1 };

static int rank;
static struct end end;
static fi_addr_t other;
static struct fi_context contexts[CONTEXTS];
static unsigned char *out, *in;
static unsigned seed;
// Completions that were read and not waited for yet.
static long sent, received;

static void read_queue(void) {
    struct fi_cq_tagged_entry entries[8];
    ssize_t count = fi_cq_read(end.queue, entries, 8);
    if (count == -FI_EAGAIN) return;
    if (count < 0) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(end.queue, &error, 0);
        FAIL("a message ended with %s", fi_strerror(error.err));
    }
    for (ssize_t at = 0; at < count; at++) {
        if (entries[at].flags & FI_RECV) received++;
        else sent++;
    }
}

static void post(void *to, size_t bytes, int at) {
    ssize_t result;
    while ((result = fi_trecv(end.endpoint, to, bytes, 0, other, TAG, 0, &contexts[at])) == -FI_EAGAIN) read_queue();
    MUST(result);
}

// Sends a message. `in_time` says whether its memory may be used again at once.
static void send_one(const void *from, size_t bytes, int at, int in_time) {
    ssize_t result;
    if (bytes <= info->tx_attr->inject_size) {
        while ((result = fi_tinjectdata(end.endpoint, from, bytes, rank, other, TAG)) == -FI_EAGAIN) read_queue();
        MUST(result);
        if (!in_time) sent++;
        return;
    }
    while ((result = fi_tsenddata(end.endpoint, from, bytes, 0, rank, other, TAG, &contexts[at])) == -FI_EAGAIN)
        read_queue();
    MUST(result);
    if (!in_time) return;
    while (!sent) read_queue();
    sent--;
}

static void receive_one(void *to, size_t bytes) {
    post(to, bytes, 0);
    while (!received) read_queue();
    received--;
}

static void ping_pong(size_t bytes, int is_touched) {
    if (rank == 0) {
        if (is_touched) touch(out, bytes, ++seed);
        send_one(out, bytes, 1, 1);
    }
    receive_one(in, bytes);
    if (rank == 1) {
        if (is_touched) {
            check_touched(in, bytes, ++seed);
            touch(out, bytes, seed);
        }
        send_one(out, bytes, 1, 1);
    } else if (is_touched) {
        check_touched(in, bytes, seed);
    }
}

static void stream(size_t bytes) {
    int window = window_of(bytes);
    if (rank == 0) {
        for (int at = 0; at < window; at++) send_one(out, bytes, at, 0);
        while (sent < window) read_queue();
        sent -= window;
        receive_one(in, 0);
    } else {
        for (int at = 0; at < window; at++) post(in, bytes, at);
        while (received < window) read_queue();
        received -= window;
        send_one(out, 0, 1, 1);
    }
}

// A window of messages each way, all of which are sent before the first is received.
static void cross(size_t bytes) {
    int window = window_of(bytes);
    for (int at = 0; at < window; at++) send_one(out, bytes, at, 0);
    for (int at = 0; at < window; at++) {
        post(in, bytes, WINDOW_MAX);
        while (!received) read_queue();
        received--;
    }
    while (sent < window) read_queue();
    sent -= window;
}

static void perform(const struct order *order, long count) {
    const char *measure = order->measure;
    int is_stream = !strcmp(measure, "stream"), is_touched = !strcmp(measure, "touched");
    int is_crossing = !strcmp(measure, "unexpected");
    if (!is_stream && !is_touched && !is_crossing && strcmp(measure, "latency")) FAIL("no measure is called %s", measure);
    for (long at = 0; at < count; at++) {
        if (is_stream) stream(order->bytes);
        else if (is_crossing) cross(order->bytes);
        else ping_pong(order->bytes, is_touched);
    }
}

static void check(const struct order *order) {
    static unsigned number;
    number++;
    memset(in, 0, order->bytes);
    write_data(out, order->bytes, number + rank);
    if (strcmp(order->measure, "unexpected")) ping_pong(order->bytes, 0);
    else cross(order->bytes);
    check_data(in, order->bytes, number + 1 - rank, order->measure);
}

// Both processes learn each other's address.
static void exchange(int file, unsigned char *theirs) {
    if (write(file, end.address, ADDRESS_BYTES) != ADDRESS_BYTES) FAIL("an address was not sent");
    if (recv(file, theirs, ADDRESS_BYTES, MSG_WAITALL) != ADDRESS_BYTES) FAIL("an address did not come");
}

int main(int count, char **arguments) {
    int files[2];
    if (count != 4 || socketpair(AF_UNIX, SOCK_STREAM, 0, files)) return 2;
    pid_t child = fork();
    if (child < 0) return 2;
    rank = child == 0;
    if (rank) prctl(PR_SET_PDEATHSIG, SIGKILL);
    conduct(arguments[1], rank);
    take_place();
    out = buffer();
    in = buffer();
    struct lines *lines = map(arguments[2], sizeof *lines);
    open_domain(arguments[3]);
    open_end(&end);
    unsigned char theirs[ADDRESS_BYTES];
    exchange(files[rank], theirs);
    other = address_of(&end, theirs);
    say("ready");
    struct order order;
    while (next_order(&order)) {
        if (order.bytes > LONGEST) FAIL("%zu B are too many", order.bytes);
        check(&order);
        double before = order.has_line ? time_line(lines, rank) : 0;
        perform(&order, order.warm);
        double began = now_ns();
        perform(&order, order.count);
        double took = now_ns() - began;
        double after = order.has_line ? time_line(lines, rank) : 0;
        say("took %.1f %.2f %.2f", took, before, after);
    }
    // Neither goes before the other has read everything.
    exchange(files[rank], theirs);
    fi_close(&end.endpoint->fid);
    fi_close(&end.queue->fid);
    fi_close(&end.addresses->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    return 0;
}
