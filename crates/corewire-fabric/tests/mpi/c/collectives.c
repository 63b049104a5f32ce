/* Every collective operation, blocking and not, for one number and for many, each result compared with the computed one. */

#include "common.h"

#define ALL MPI_COMM_WORLD

static int count, root, *in, *out;
static size_t places;

/* What rank `from` has for rank `to` at place `i`. */
static int value(int from, int to, int i) { return from * 7919 + to * 104729 + i % 1000 + 1; }

static int sum(int last, int to, int i) {
    int all = 0;
    for (int from = 0; from <= last; from++)
        all += value(from, to, i);
    return all;
}

static void make(void) {
    places = (size_t)count * size;
    in = malloc((places + 1) * sizeof *in);
    out = malloc((places + 1) * sizeof *out);
    for (int to = 0; to < size; to++)
        for (int i = 0; i < count; i++)
            in[to * count + i] = value(rank, to, i);
}

static void clear(void) {
    for (size_t i = 0; i <= places; i++)
        out[i] = -1;
}

static void expect(const char *name, size_t place, int expected) {
    CHECK(out[place] == expected, "%s, count %d, root %d, place %zu: %d and not %d", name, count, root, place,
          out[place], expected);
}

/* Nothing behind `length` numbers was written. */
static void expect_end(const char *name, size_t length) {
    for (size_t i = length; i <= places; i++)
        expect(name, i, -1);
}

/* The blocking form, and the other one to its end. */
#define BOTH(name, iname, check, ...)                 \
    for (int form = 0; form < 2; form++) {            \
        clear();                                      \
        if (form == 0) {                              \
            MPI_##name(__VA_ARGS__);                  \
        } else {                                      \
            MPI_Request request;                      \
            MPI_##iname(__VA_ARGS__, &request);       \
            MPI_Wait(&request, MPI_STATUS_IGNORE);    \
        }                                             \
        check(form ? #iname : #name);                 \
    }

static void all_of_root(const char *name) {
    for (int i = 0; i < count; i++)
        expect(name, i, value(root, 0, i));
    expect_end(name, count);
}

static void sums_at_root(const char *name) {
    for (int i = 0; rank == root && i < count; i++)
        expect(name, i, sum(size - 1, 0, i));
    expect_end(name, rank == root ? count : 0);
}

static void sums(const char *name) {
    for (int i = 0; i < count; i++)
        expect(name, i, sum(size - 1, 0, i));
    expect_end(name, count);
}

static void largest(const char *name) {
    for (int i = 0; i < count; i++)
        expect(name, i, value(size - 1, 0, i));
}

static void sums_so_far(const char *name) {
    for (int i = 0; i < count; i++)
        expect(name, i, sum(rank, 0, i));
}

static void sums_before(const char *name) {
    for (int i = 0; rank > 0 && i < count; i++)
        expect(name, i, sum(rank - 1, 0, i));
}

static void own_sums(const char *name) {
    for (int i = 0; i < count; i++)
        expect(name, i, sum(size - 1, rank, i));
    expect_end(name, count);
}

static void firsts_at_root(const char *name) {
    for (int from = 0; rank == root && from < size; from++)
        for (int i = 0; i < count; i++)
            expect(name, (size_t)from * count + i, value(from, 0, i));
    if (rank != root)
        expect_end(name, 0);
}

static void firsts(const char *name) {
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            expect(name, (size_t)from * count + i, value(from, 0, i));
}

static void own_of_root(const char *name) {
    for (int i = 0; i < count; i++)
        expect(name, i, value(root, rank, i));
    expect_end(name, count);
}

static void own_of_all(const char *name) {
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            expect(name, (size_t)from * count + i, value(from, rank, i));
}

/* Rank k has k % 3 numbers fewer than `count`, at the place of `count`. */
static int counts[64], places_of[64], bytes_of[64];
static MPI_Datatype types[64];

static int shorter(int of) { return count > of % 3 ? count - of % 3 : count; }

static void shorter_at_root(const char *name) {
    for (int from = 0; rank == root && from < size; from++)
        for (int i = 0; i < count; i++)
            expect(name, (size_t)from * count + i, i < shorter(from) ? value(from, 0, i) : -1);
}

static void shorter_of_all(const char *name) {
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            expect(name, (size_t)from * count + i, i < shorter(from) ? value(from, 0, i) : -1);
}

static void shorter_of_root(const char *name) {
    for (int i = 0; i < shorter(rank); i++)
        expect(name, i, value(root, rank, i));
    expect_end(name, shorter(rank));
}

/* What goes from rank a to rank b is shorter by (a + b) % 3. */
static void shorter_between_all(const char *name) {
    for (int from = 0; from < size; from++)
        for (int i = 0; i < count; i++)
            expect(name, (size_t)from * count + i, i < shorter(from + rank) ? value(from, rank, i) : -1);
}

static void with_root(void) {
    for (int form = 0; form < 2; form++) {
        MPI_Request request = MPI_REQUEST_NULL;
        clear();
        if (rank == root)
            memcpy(out, in, count * sizeof *in);
        if (form == 0)
            MPI_Bcast(out, count, MPI_INT, root, ALL);
        else
            MPI_Ibcast(out, count, MPI_INT, root, ALL, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        all_of_root("Bcast");
    }
    BOTH(Reduce, Ireduce, sums_at_root, in, out, count, MPI_INT, MPI_SUM, root, ALL)
    BOTH(Gather, Igather, firsts_at_root, in, count, MPI_INT, out, count, MPI_INT, root, ALL)
    BOTH(Scatter, Iscatter, own_of_root, in, count, MPI_INT, out, count, MPI_INT, root, ALL)
    BOTH(Gatherv, Igatherv, shorter_at_root, in, shorter(rank), MPI_INT, out, counts, places_of, MPI_INT, root, ALL)
    BOTH(Scatterv, Iscatterv, shorter_of_root, in, counts, places_of, MPI_INT, out, shorter(rank), MPI_INT, root, ALL)
}

/* An operation in which the order counts: 2x2 matrices modulo 2^32. */
static void multiply(void *left_pointer, void *right_pointer, int *length, MPI_Datatype *type) {
    uint32_t(*left)[4] = left_pointer, (*right)[4] = right_pointer;
    (void)type;
    for (int i = 0; i < *length; i++) {
        uint32_t *a = left[i], *b = right[i];
        uint32_t all[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                           a[2] * b[1] + a[3] * b[3]};
        memcpy(b, all, sizeof all);
    }
}

static void matrix_of(int of, uint32_t all[4]) {
    for (int i = 0; i < 4; i++)
        all[i] = of * 17 + i * 3 + 1;
}

static void in_order(void) {
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(4, MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(multiply, 0, &op);
    uint32_t own[4], all[4], expected[4], next[4];
    matrix_of(rank, own);
    MPI_Allreduce(own, all, 1, type, op, ALL);
    matrix_of(size - 1, expected);
    for (int of = size - 2; of >= 0; of--) {
        int one = 1;
        matrix_of(of, next);
        multiply(next, expected, &one, &type);
    }
    CHECK(memcmp(all, expected, sizeof all) == 0, "the order of the factors");
    struct {
        double value;
        int place;
    } mine = {rank == size / 2 ? -1.5 : rank, rank}, least;
    MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, ALL);
    CHECK(least.place == size / 2 && least.value == (least.place == rank ? mine.value : -1.5), "%d", least.place);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

static void among_neighbours(void) {
    MPI_Comm ring;
    int is_ring = 1, from_left, from_right;
    MPI_Cart_create(ALL, 1, &size, &is_ring, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &from_left, &from_right);
    int both[2], sent[2] = {rank * 10, rank * 10 + 1};
    MPI_Neighbor_allgather(sent, 1, MPI_INT, both, 1, MPI_INT, ring);
    CHECK(both[0] == from_left * 10 && both[1] == from_right * 10, "%d %d", both[0], both[1]);
    /* With two ranks both neighbours are the same, and MPI does not order what they send each other. */
    if (size > 2) {
        MPI_Neighbor_alltoall(sent, 1, MPI_INT, both, 1, MPI_INT, ring);
        CHECK(both[0] == from_left * 10 + 1 && both[1] == from_right * 10, "%d %d", both[0], both[1]);
    }
    MPI_Comm_free(&ring);
}

static void without_root(void) {
    BOTH(Allreduce, Iallreduce, sums, in, out, count, MPI_INT, MPI_SUM, ALL)
    BOTH(Allreduce, Iallreduce, largest, in, out, count, MPI_INT, MPI_MAX, ALL)
    BOTH(Allgather, Iallgather, firsts, in, count, MPI_INT, out, count, MPI_INT, ALL)
    BOTH(Alltoall, Ialltoall, own_of_all, in, count, MPI_INT, out, count, MPI_INT, ALL)
    BOTH(Scan, Iscan, sums_so_far, in, out, count, MPI_INT, MPI_SUM, ALL)
    BOTH(Exscan, Iexscan, sums_before, in, out, count, MPI_INT, MPI_SUM, ALL)
    BOTH(Reduce_scatter_block, Ireduce_scatter_block, own_sums, in, out, count, MPI_INT, MPI_SUM, ALL)
    BOTH(Allgatherv, Iallgatherv, shorter_of_all, in, shorter(rank), MPI_INT, out, counts, places_of, MPI_INT, ALL)
    int same[64], between[64];
    for (int of = 0; of < size; of++) {
        same[of] = count;
        between[of] = shorter(of + rank);
        bytes_of[of] = places_of[of] * (int)sizeof *in;
        types[of] = MPI_INT;
    }
    BOTH(Reduce_scatter, Ireduce_scatter, own_sums, in, out, same, MPI_INT, MPI_SUM, ALL)
    BOTH(Alltoallv, Ialltoallv, shorter_between_all, in, between, places_of, MPI_INT, out, between, places_of, MPI_INT, ALL)
    BOTH(Alltoallw, Ialltoallw, shorter_between_all, in, between, bytes_of, types, out, between, bytes_of, types, ALL)
    clear();
    memcpy(out, in, count * sizeof *in);
    MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_INT, MPI_SUM, ALL);
    sums("Allreduce in place");
    MPI_Request request;
    MPI_Barrier(ALL);
    MPI_Ibarrier(ALL, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argument_count, char **words) {
    begin(&argument_count, &words);
    CHECK(size <= 64, "64 ranks at most");
    const int lengths[] = {1, 7, 1000, 40000};
    for (int length = 0; length < 4; length++) {
        count = size <= 4 || length < 3 ? lengths[length] : 10000;
        make();
        for (int of = 0; of < size; of++) {
            counts[of] = shorter(of);
            places_of[of] = of * count;
        }
        without_root();
        for (root = 0; root < size; root += size > 2 ? size - 1 : 1)
            with_root();
        root = 0;
        free(in);
        free(out);
    }
    in_order();
    among_neighbours();
    end();
}
