/* spdk/queue.h: Lists: the C library's <sys/queue.h>, and the BSDs' macros that it lacks.
 *
 * Written for this project from the names, types and numbers of SPDK's public interface (https://spdk.io/doc/). That
 * page describes each call. spdk-emu states where the stand-in differs. */
#ifndef SPDK_QUEUE_H
#define SPDK_QUEUE_H

#include <stddef.h>

#include <sys/cdefs.h>
#include <sys/queue.h>

/* Iterations: from an element on, and with removal of the current element allowed. */
#define SPDK_QUEUE_FROM_(var, first, next) for ((var) = (var) ? (var) : (first); (var); (var) = (next))
#define SPDK_QUEUE_SAFE_(var, start, next, tvar) \
	for ((var) = (start); (var) && ((tvar) = (next), 1); (var) = (tvar))
#define SPDK_QUEUE_OWNER_(link, type, member) ((type *)(void *)((char *)(link) - offsetof(type, member)))

#ifndef SLIST_FOREACH_SAFE
#define SLIST_FOREACH_SAFE(var, head, field, tvar) \
	SPDK_QUEUE_SAFE_(var, SLIST_FIRST(head), SLIST_NEXT(var, field), tvar)
#endif
#ifndef SLIST_FOREACH_FROM
#define SLIST_FOREACH_FROM(var, head, field) SPDK_QUEUE_FROM_(var, SLIST_FIRST(head), SLIST_NEXT(var, field))
#endif
#ifndef SLIST_SWAP
#define SLIST_SWAP(head1, head2, type) \
	do { \
		struct type *spdk_first_ = SLIST_FIRST(head1); \
		SLIST_FIRST(head1) = SLIST_FIRST(head2); \
		SLIST_FIRST(head2) = spdk_first_; \
	} while (0)
#endif

#ifndef LIST_FOREACH_SAFE
#define LIST_FOREACH_SAFE(var, head, field, tvar) SPDK_QUEUE_SAFE_(var, LIST_FIRST(head), LIST_NEXT(var, field), tvar)
#endif
#ifndef LIST_FOREACH_FROM
#define LIST_FOREACH_FROM(var, head, field) SPDK_QUEUE_FROM_(var, LIST_FIRST(head), LIST_NEXT(var, field))
#endif
#ifndef LIST_FOREACH_FROM_SAFE
#define LIST_FOREACH_FROM_SAFE(var, head, field, tvar) \
	SPDK_QUEUE_SAFE_(var, (var) ? (var) : LIST_FIRST(head), LIST_NEXT(var, field), tvar)
#endif
#ifndef LIST_PREV
#define LIST_PREV(elm, head, type, field) \
	((elm)->field.le_prev == &LIST_FIRST(head) ? (struct type *)NULL : \
		SPDK_QUEUE_OWNER_((elm)->field.le_prev, struct type, field.le_next))
#endif
#ifndef LIST_SWAP
#define LIST_SWAP(head1, head2, type, field) \
	do { \
		struct type *spdk_first_ = LIST_FIRST(head1); \
		LIST_FIRST(head1) = LIST_FIRST(head2); \
		LIST_FIRST(head2) = spdk_first_; \
		if (LIST_FIRST(head1) != NULL) \
			LIST_FIRST(head1)->field.le_prev = &LIST_FIRST(head1); \
		if (LIST_FIRST(head2) != NULL) \
			LIST_FIRST(head2)->field.le_prev = &LIST_FIRST(head2); \
	} while (0)
#endif

#ifndef STAILQ_FOREACH_SAFE
#define STAILQ_FOREACH_SAFE(var, head, field, tvar) \
	SPDK_QUEUE_SAFE_(var, STAILQ_FIRST(head), STAILQ_NEXT(var, field), tvar)
#endif
#ifndef STAILQ_FOREACH_FROM
#define STAILQ_FOREACH_FROM(var, head, field) SPDK_QUEUE_FROM_(var, STAILQ_FIRST(head), STAILQ_NEXT(var, field))
#endif
#ifndef STAILQ_FOREACH_FROM_SAFE
#define STAILQ_FOREACH_FROM_SAFE(var, head, field, tvar) \
	SPDK_QUEUE_SAFE_(var, (var) ? (var) : STAILQ_FIRST(head), STAILQ_NEXT(var, field), tvar)
#endif
#ifndef STAILQ_LAST
#define STAILQ_LAST(head, type, field) \
	(STAILQ_EMPTY(head) ? (struct type *)NULL : SPDK_QUEUE_OWNER_((head)->stqh_last, struct type, field.stqe_next))
#endif
#ifndef STAILQ_REMOVE_AFTER
#define STAILQ_REMOVE_AFTER(head, elm, field) \
	do { \
		STAILQ_NEXT(elm, field) = STAILQ_NEXT(STAILQ_NEXT(elm, field), field); \
		if (STAILQ_NEXT(elm, field) == NULL) \
			(head)->stqh_last = &STAILQ_NEXT(elm, field); \
	} while (0)
#endif
#ifndef STAILQ_SWAP
#define STAILQ_SWAP(head1, head2, type) \
	do { \
		struct type *spdk_first_ = STAILQ_FIRST(head1); \
		struct type **spdk_last_ = (head1)->stqh_last; \
		STAILQ_FIRST(head1) = STAILQ_FIRST(head2); \
		(head1)->stqh_last = STAILQ_EMPTY(head1) ? &STAILQ_FIRST(head1) : (head2)->stqh_last; \
		STAILQ_FIRST(head2) = spdk_first_; \
		(head2)->stqh_last = STAILQ_EMPTY(head2) ? &STAILQ_FIRST(head2) : spdk_last_; \
	} while (0)
#endif

#ifndef TAILQ_FOREACH_SAFE
#define TAILQ_FOREACH_SAFE(var, head, field, tvar) \
	SPDK_QUEUE_SAFE_(var, TAILQ_FIRST(head), TAILQ_NEXT(var, field), tvar)
#endif
#ifndef TAILQ_FOREACH_FROM
#define TAILQ_FOREACH_FROM(var, head, field) SPDK_QUEUE_FROM_(var, TAILQ_FIRST(head), TAILQ_NEXT(var, field))
#endif
#ifndef TAILQ_FOREACH_FROM_SAFE
#define TAILQ_FOREACH_FROM_SAFE(var, head, field, tvar) \
	SPDK_QUEUE_SAFE_(var, (var) ? (var) : TAILQ_FIRST(head), TAILQ_NEXT(var, field), tvar)
#endif
#ifndef TAILQ_FOREACH_REVERSE_SAFE
#define TAILQ_FOREACH_REVERSE_SAFE(var, head, headname, field, tvar) \
	SPDK_QUEUE_SAFE_(var, TAILQ_LAST(head, headname), TAILQ_PREV(var, headname, field), tvar)
#endif
#ifndef TAILQ_FOREACH_REVERSE_FROM
#define TAILQ_FOREACH_REVERSE_FROM(var, head, headname, field) \
	SPDK_QUEUE_FROM_(var, TAILQ_LAST(head, headname), TAILQ_PREV(var, headname, field))
#endif
#ifndef TAILQ_FOREACH_REVERSE_FROM_SAFE
#define TAILQ_FOREACH_REVERSE_FROM_SAFE(var, head, headname, field, tvar) \
	SPDK_QUEUE_SAFE_(var, (var) ? (var) : TAILQ_LAST(head, headname), TAILQ_PREV(var, headname, field), tvar)
#endif
#ifndef TAILQ_SWAP
#define TAILQ_SWAP(head1, head2, type, field) \
	do { \
		struct type *spdk_first_ = TAILQ_FIRST(head1); \
		struct type **spdk_last_ = (head1)->tqh_last; \
		(head1)->tqh_first = TAILQ_FIRST(head2); \
		(head1)->tqh_last = TAILQ_EMPTY(head1) ? &(head1)->tqh_first : (head2)->tqh_last; \
		(head2)->tqh_first = spdk_first_; \
		(head2)->tqh_last = TAILQ_EMPTY(head2) ? &(head2)->tqh_first : spdk_last_; \
		if (!TAILQ_EMPTY(head1)) \
			TAILQ_FIRST(head1)->field.tqe_prev = &(head1)->tqh_first; \
		if (!TAILQ_EMPTY(head2)) \
			TAILQ_FIRST(head2)->field.tqe_prev = &(head2)->tqh_first; \
	} while (0)
#endif

/* Tests if an element is in a list. The link must be cleared while the element is in no list. */
#define TAILQ_ENTRY_ENQUEUED(elm, field) ((elm)->field.tqe_prev != NULL)
#define TAILQ_ENTRY_NOT_ENQUEUED(elm, field) (!TAILQ_ENTRY_ENQUEUED(elm, field))
#define TAILQ_ENTRY_CLEAR(elm, field) ((void)((elm)->field.tqe_prev = NULL))
#define TAILQ_REMOVE_CLEAR(head, elm, field) \
	do { \
		TAILQ_REMOVE(head, elm, field); \
		TAILQ_ENTRY_CLEAR(elm, field); \
	} while (0)

#endif
