// Measures an MPI: blocks of one operation each, as the study asks for them.
//
//   measure SOCKET LINES

#include "conductor.h"
#include "line.h"

#include <mpi.h>

enum { TAG = 42 };

static int rank, ranks;
static unsigned char *out, *in;
static unsigned seed;

// A message there and one back.
static void ping_pong(size_t bytes, int is_touched) {
    int count = bytes, other = 1 - rank;
    if (rank == 0) {
        if (is_touched) touch(out, bytes, ++seed);
        MPI_Send(out, count, MPI_BYTE, other, TAG, MPI_COMM_WORLD);
    }
    MPI_Recv(in, count, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) {
        if (is_touched) {
            check_touched(in, bytes, ++seed);
            touch(out, bytes, seed);
        }
        MPI_Send(out, count, MPI_BYTE, other, TAG, MPI_COMM_WORLD);
    } else if (is_touched) {
        check_touched(in, bytes, seed);
    }
}

// A window of messages from rank 0, and an empty one back.
static void stream(size_t bytes) {
    static MPI_Request requests[64];
    int window = window_of(bytes), count = bytes;
    for (int at = 0; at < window; at++) {
        if (rank == 0) MPI_Isend(out, count, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[at]);
        else MPI_Irecv(in, count, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (rank == 0) MPI_Recv(in, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(out, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

// A window of messages each way, all of which are sent before the first is received.
static void cross(size_t bytes) {
    static MPI_Request requests[64];
    int window = window_of(bytes), count = bytes, other = 1 - rank;
    for (int at = 0; at < window; at++) MPI_Isend(out, count, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &requests[at]);
    for (int at = 0; at < window; at++) MPI_Recv(in, count, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
}

// 8 bytes around all ranks.
static void ring(void) {
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    if (rank == 0) MPI_Send(out, 8, MPI_BYTE, next, TAG, MPI_COMM_WORLD);
    MPI_Recv(in, 8, MPI_BYTE, previous, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0) MPI_Send(in, 8, MPI_BYTE, next, TAG, MPI_COMM_WORLD);
}

static void allreduce(size_t bytes) {
    MPI_Allreduce(out, in, (int)(bytes / sizeof(double)), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(size_t bytes) {
    MPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static unsigned char *window_memory;

// Memory of each rank that the others may use for as long as the program runs.
static MPI_Win window(void) {
    static MPI_Win window = MPI_WIN_NULL;
    if (window == MPI_WIN_NULL) {
        MPI_Win_allocate(LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_memory, &window);
        MPI_Win_lock_all(0, window);
    }
    return window;
}

// Rank 0 puts or gets, until it is done there; rank 1 waits inside MPI, as a process does that has nothing else to do.
static void one_sided(size_t bytes, int is_put, long count) {
    MPI_Win target = window();
    if (rank == 1) {
        MPI_Recv(0, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    for (long at = 0; at < count; at++) {
        if (is_put) MPI_Put(out, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, target);
        else MPI_Get(in, (int)bytes, MPI_BYTE, 1, 0, (int)bytes, MPI_BYTE, target);
        MPI_Win_flush(1, target);
    }
    MPI_Send(0, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
}

static int is(const struct order *order, const char *measure) { return !strcmp(order->measure, measure); }

static void perform(const struct order *order, long count) {
    size_t bytes = order->bytes;
    if (is(order, "put") || is(order, "get")) {
        one_sided(bytes, is(order, "put"), count);
        return;
    }
    int is_touched = is(order, "touched");
    for (long at = 0; at < count; at++) {
        if (is_touched || is(order, "latency")) ping_pong(bytes, is_touched);
        else if (is(order, "stream")) stream(bytes);
        else if (is(order, "unexpected")) cross(bytes);
        else if (is(order, "ring")) ring();
        else if (is(order, "allreduce")) allreduce(bytes);
        else if (is(order, "all_to_all")) all_to_all(bytes);
        else FAIL("no measure is called %s", order->measure);
    }
}

// Does one operation, and compares each byte that arrives.
static void check(const struct order *order) {
    size_t bytes = order->bytes;
    const char *what = order->measure;
    static unsigned number;
    number++;
    memset(in, 0, is(order, "all_to_all") ? bytes * ranks : bytes);
    if (is(order, "allreduce")) {
        double *values = (double *)out, *sums = (double *)in;
        size_t count = bytes / sizeof(double);
        for (size_t at = 0; at < count; at++) values[at] = (at + number) % 1000 + rank;
        allreduce(bytes);
        for (size_t at = 0; at < count; at++) {
            double wanted = (double)ranks * ((at + number) % 1000) + ranks * (ranks - 1) / 2.0;
            if (sums[at] != wanted) FAIL("allreduce of %zu B: sum %zu is %f, not %f", bytes, at, sums[at], wanted);
        }
    } else if (is(order, "all_to_all")) {
        for (int to = 0; to < ranks; to++) write_data(out + to * bytes, bytes, number + rank * 16 + to);
        all_to_all(bytes);
        for (int from = 0; from < ranks; from++) check_data(in + from * bytes, bytes, number + from * 16 + rank, what);
    } else if (is(order, "put") || is(order, "get")) {
        MPI_Win target = window();
        if (rank == 1) write_data(window_memory, bytes, is(order, "get") ? number : number + 1);
        MPI_Win_sync(target);
        MPI_Barrier(MPI_COMM_WORLD);
        write_data(out, bytes, number);
        one_sided(bytes, is(order, "put"), 1);
        MPI_Win_sync(target);
        if (is(order, "put") && rank == 1) check_data(window_memory, bytes, number, what);
        if (is(order, "get") && rank == 0) check_data(in, bytes, number, what);
    } else {
        size_t length = is(order, "ring") ? 8 : bytes;
        write_data(out, length, rank == 0 || !is(order, "ring") ? number + rank : number);
        if (is(order, "ring")) {
            ring();
            check_data(in, length, number, what);
        } else if (is(order, "stream")) {
            stream(bytes);
            if (rank == 1) check_data(in, length, number, what);
        } else {
            if (is(order, "unexpected")) cross(bytes);
            else ping_pong(bytes, 0);
            check_data(in, length, number + 1 - rank, what);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    conduct(arguments[1], rank);
    take_place();
    out = buffer();
    in = buffer();
    struct lines *lines = map(arguments[2], sizeof *lines);
    MPI_Barrier(MPI_COMM_WORLD);
    say("ready");
    struct order order;
    while (next_order(&order)) {
        if (order.bytes * (is(&order, "all_to_all") ? ranks : 1) > LONGEST) FAIL("%zu B are too many", order.bytes);
        int has_line = order.has_line && rank < 2;
        check(&order);
        double before = has_line ? time_line(lines, rank) : 0;
        perform(&order, order.warm);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = now_ns();
        perform(&order, order.count);
        double took = now_ns() - began;
        double after = has_line ? time_line(lines, rank) : 0;
        say("took %.1f %.2f %.2f", took, before, after);
    }
    if (window_memory) {
        MPI_Win target = window();
        MPI_Win_unlock_all(target);
        MPI_Win_free(&target);
    }
    MPI_Finalize();
    return 0;
}
