#include <stdlib.h>
#include <string.h>

#include "agent/source_sqlite.h"
#include "agent/turn.h"

struct co_turn *co_turn_new(void)
{
    return calloc(1, sizeof(struct co_turn));
}

/* Only what is counted is looked at, so the big arrays need no clearing. */
void co_turn_reset(struct co_turn *turn)
{
    for (uint32_t i = 0; i < turn->n_settles; i++) {
        free(turn->settles[i].text);
        turn->settles[i].text = NULL;
    }
    for (uint32_t i = 0; i < turn->n_claims; i++) {
        free(turn->claims[i].payload);
        turn->claims[i].payload = NULL;
    }
    turn->n_settles = turn->n_starts = turn->n_wants = 0;
    turn->heartbeat = turn->recover = turn->depths = turn->bye = false;
    turn->code = 0;
    turn->err.code = 0;
    turn->err.sys = 0;
    turn->err.msg[0] = '\0';
    turn->n_claims = turn->n_depths = turn->n_gone = turn->n_beats = 0;
    turn->foreign_change = false;
    turn->next_due = 0;
    turn->n_quarantined = 0;
    turn->quarantined_why[0] = '\0';
    turn->n_recovered_settled = turn->n_recovered_lost = turn->n_recovered_back = 0;
    turn->total_held = 0;
    turn->took_us = 0;
}

void co_turn_free(struct co_turn **turn)
{
    if (turn == NULL || *turn == NULL) {
        return;
    }
    co_turn_reset(*turn);
    free(*turn);
    *turn = NULL;
}
