/* One-sided operations in every kind of epoch: put, get, accumulate, fetch, compare and swap; short and long. */

#include "common.h"

enum { LONGS = 1 << 16, TIMES = 50 };

static MPI_Win window;
static long *memory;

static void fenced(int right, int left) {
    long out = rank + 100, in = -1, *many = malloc(LONGS / 2 * sizeof *many);
    memset(memory, 0, LONGS * sizeof *memory);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_fence(0, window);
    MPI_Put(&out, 1, MPI_LONG, right, rank, 1, MPI_LONG, window);
    MPI_Win_fence(0, window);
    CHECK(memory[left] == left + 100, "%ld", memory[left]);
    MPI_Get(&in, 1, MPI_LONG, right, rank, 1, MPI_LONG, window);
    MPI_Win_fence(0, window);
    CHECK(in == rank + 100, "%ld", in);
    for (int i = 0; i < LONGS / 2; i++)
        many[i] = rank * 1000003L + i;
    MPI_Put(many, LONGS / 2, MPI_LONG, right, LONGS / 2, LONGS / 2, MPI_LONG, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LONGS / 2; i++)
        CHECK(memory[LONGS / 2 + i] == left * 1000003L + i, "place %d", i);
    MPI_Get(many, LONGS / 2, MPI_LONG, left, LONGS / 2, LONGS / 2, MPI_LONG, window);
    MPI_Win_fence(0, window);
    int before = (left + size - 1) % size;
    for (int i = 0; i < LONGS / 2; i++)
        CHECK(many[i] == before * 1000003L + i, "place %d", i);
    long one = 1;
    for (int i = 0; i < TIMES; i++)
        MPI_Accumulate(&one, 1, MPI_LONG, 0, 200, 1, MPI_LONG, MPI_SUM, window);
    for (int i = 0; i < LONGS / 2; i++)
        many[i] = i + rank;
    MPI_Accumulate(many, LONGS / 4, MPI_LONG, 0, 1000, LONGS / 4, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    if (rank == 0) {
        CHECK(memory[200] == (long)size * TIMES, "%ld", memory[200]);
        for (int i = 0; i < LONGS / 4; i++)
            CHECK(memory[1000 + i] == (long)size * i + size * (size - 1) / 2, "place %d", i);
    }
    free(many);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void locked(void) {
    long one = 1, before, seen;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    memset(memory, 0, LONGS * sizeof *memory);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < TIMES; i++) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 3, MPI_SUM, window);
        MPI_Win_unlock(0, window);
        CHECK(before >= i && before < (long)size * TIMES, "%ld", before);
        /* Nothing but the lock keeps these two together. */
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&seen, 1, MPI_LONG, 0, 4, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        seen++;
        MPI_Put(&seen, 1, MPI_LONG, 0, 4, 1, MPI_LONG, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    long both[2];
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(both, 2, MPI_LONG, 0, 3, 2, MPI_LONG, window);
    MPI_Win_unlock(0, window);
    CHECK(both[0] == (long)size * TIMES && both[1] == both[0], "%ld %ld", both[0], both[1]);
    /* One of all wins. */
    long mine = rank + 1, none = 0, winner;
    MPI_Win_lock_all(0, window);
    MPI_Compare_and_swap(&mine, &none, &before, MPI_LONG, 0, 5, window);
    MPI_Win_flush(0, window);
    int has_won = before == 0, winners;
    MPI_Win_unlock_all(window);
    MPI_Allreduce(&has_won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(winners == 1, "%d", winners);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get_accumulate(&none, 1, MPI_LONG, &winner, 1, MPI_LONG, 0, 5, 1, MPI_LONG, MPI_NO_OP, window);
    MPI_Win_unlock(0, window);
    CHECK(winner >= 1 && winner <= size && (has_won == (winner == mine)), "%ld", winner);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Only the two that take part wait for each other. */
static void posted(int right, int left) {
    MPI_Group all, from, to;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &left, &from);
    MPI_Group_incl(all, 1, &right, &to);
    for (int i = 0; i < TIMES; i++) {
        long out = rank * 1000L + i;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(&out, 1, MPI_LONG, right, 6, 1, MPI_LONG, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        CHECK(memory[6] == left * 1000L + i, "%ld", memory[6]);
    }
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    MPI_Group_free(&all);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **words) {
    begin(&count, &words);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int is_own = 0; is_own < 2; is_own++) {
        void *own = is_own ? malloc(LONGS * sizeof *memory) : NULL;
        if (is_own)
            MPI_Win_create(memory = own, LONGS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        else
            MPI_Win_allocate(LONGS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
        fenced(right, left);
        locked();
        posted(right, left);
        MPI_Win_free(&window);
        free(own);
    }
    end();
}
