/* Debian's SQLite for benches/diff.py: rows are put in, changed, looked up and added up.
   usage: shelf ROUNDS SLOWER: adds up SLOWER percent more often than is due. */

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline))

static sqlite3 *shelf;

static sqlite3_stmt *prepare(const char *text) {
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(shelf, text, -1, &statement, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", text, sqlite3_errmsg(shelf));
        exit(1);
    }
    return statement;
}

APART static long run(sqlite3_stmt *statement, long one, long other) {
    long rows = 0;
    sqlite3_reset(statement);
    sqlite3_bind_int64(statement, 1, one);
    sqlite3_bind_int64(statement, 2, other);
    while (sqlite3_step(statement) == SQLITE_ROW) rows += sqlite3_column_int(statement, 0) & 1;
    return rows;
}

APART static void put_in(sqlite3_stmt *statement, long round) {
    for (long row = 0; row < 250; row++) run(statement, round * 31 + row * 7919 % 5000, row);
    __asm__("");
}

APART static void change(sqlite3_stmt *statement, long round) {
    for (long row = 0; row < 60; row++) run(statement, round % 97 + row, row * 83 % 5000);
    __asm__("");
}

APART static long look_up(sqlite3_stmt *statement, long round) {
    long found = 0;
    for (long row = 0; row < 90; row++) found += run(statement, (round * 17 + row * 53) % 5000, row);
    return found;
}

APART static long add_up(sqlite3_stmt *statement, long round) {
    long sum = run(statement, round * 13 % 3000, 1400);
    __asm__("");
    return sum;
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "usage: shelf ROUNDS SLOWER\n"), 2;
    long rounds = atol(words[1]), slower = atol(words[2]), owed = 0, sum = 0;
    sqlite3_open(":memory:", &shelf);
    sqlite3_exec(shelf, "CREATE TABLE books(number INTEGER PRIMARY KEY, shelf INT, title TEXT);"
                        "CREATE INDEX by_shelf ON books(shelf)", NULL, NULL, NULL);
    sqlite3_stmt *insert = prepare("INSERT OR REPLACE INTO books VALUES(?1 % 5000, ?2 % 60, 'title ' || ?1)");
    sqlite3_stmt *update = prepare("UPDATE books SET shelf = ?1 % 60, title = title || '!' WHERE number = ?2");
    sqlite3_stmt *select = prepare("SELECT length(title), upper(title) FROM books WHERE number >= ?1 LIMIT 5");
    sqlite3_stmt *group = prepare("SELECT sum(number), shelf, max(title) FROM books "
                                  "WHERE number BETWEEN ?1 AND ?1 + ?2 GROUP BY shelf ORDER BY 1");
    for (long round = 0; round < rounds; round++) {
        sqlite3_exec(shelf, "BEGIN", NULL, NULL, NULL);
        put_in(insert, round);
        change(update, round);
        sqlite3_exec(shelf, "COMMIT", NULL, NULL, NULL);
        sum += look_up(select, round);
        for (owed += 100 + slower; owed >= 100; owed -= 100) sum += add_up(group, round);
    }
    printf("%ld\n", sum);
}
