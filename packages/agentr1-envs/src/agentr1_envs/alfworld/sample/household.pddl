; A household for text games: one person, furniture that stands at places, and things that lie in or on it.
; Written for agentr1. A place is a spot to stand at; every piece of furniture has one of its own.

(define (domain household)
  (:requirements :adl :typing)
  (:types person place furniture thing fkind tkind)

  (:predicates
    (at ?p - person ?s - place)
    (stands ?f - furniture ?s - place)
    (lies ?t - thing ?f - furniture)
    (carries ?p - person ?t - thing)
    (busy ?p - person)
    (door ?f - furniture)                    ; it can be opened
    (open ?f - furniture)
    (iskind ?t - thing ?k - tkind)
    (isfurniture ?f - furniture ?k - fkind)
    (fits ?k - tkind ?f - fkind)
    (washes ?k - fkind) (warms ?k - fkind) (chills ?k - fkind)
    (washable ?t - thing) (warmable ?t - thing) (chillable ?t - thing) (cuttable ?t - thing)
    (portable ?t - thing) (lamp ?t - thing) (blade ?t - thing)
    (clean ?t - thing) (hot ?t - thing) (cold ?t - thing) (cut ?t - thing) (lit ?t - thing)
    (noticed ?x)
  )

  (:action walk
    :parameters (?p - person ?from - place ?to - place ?f - furniture)
    :precondition (and (at ?p ?from) (stands ?f ?to))
    :effect (and (not (at ?p ?from)) (at ?p ?to)))

  (:action open
    :parameters (?p - person ?s - place ?f - furniture)
    :precondition (and (at ?p ?s) (stands ?f ?s) (door ?f) (not (open ?f)))
    :effect (open ?f))

  (:action close
    :parameters (?p - person ?s - place ?f - furniture)
    :precondition (and (at ?p ?s) (stands ?f ?s) (door ?f) (open ?f))
    :effect (not (open ?f)))

  (:action take
    :parameters (?p - person ?s - place ?t - thing ?f - furniture)
    :precondition (and (at ?p ?s) (stands ?f ?s) (lies ?t ?f) (portable ?t) (not (busy ?p))
                       (imply (door ?f) (open ?f)))
    :effect (and (not (lies ?t ?f)) (carries ?p ?t) (busy ?p)))

  (:action move
    :parameters (?p - person ?s - place ?t - thing ?f - furniture)
    :precondition (and (carries ?p ?t) (at ?p ?s) (stands ?f ?s) (imply (door ?f) (open ?f))
                       (exists (?k - tkind ?n - fkind) (and (iskind ?t ?k) (isfurniture ?f ?n) (fits ?k ?n))))
    :effect (and (lies ?t ?f) (not (carries ?p ?t)) (not (busy ?p))))

  (:action clean
    :parameters (?p - person ?s - place ?t - thing ?f - furniture)
    :precondition (and (carries ?p ?t) (washable ?t) (at ?p ?s) (stands ?f ?s)
                       (exists (?n - fkind) (and (isfurniture ?f ?n) (washes ?n))))
    :effect (clean ?t))

  (:action heat
    :parameters (?p - person ?s - place ?t - thing ?f - furniture)
    :precondition (and (carries ?p ?t) (warmable ?t) (at ?p ?s) (stands ?f ?s)
                       (exists (?n - fkind) (and (isfurniture ?f ?n) (warms ?n))))
    :effect (and (hot ?t) (not (cold ?t))))

  (:action cool
    :parameters (?p - person ?s - place ?t - thing ?f - furniture)
    :precondition (and (carries ?p ?t) (chillable ?t) (at ?p ?s) (stands ?f ?s)
                       (exists (?n - fkind) (and (isfurniture ?f ?n) (chills ?n))))
    :effect (and (cold ?t) (not (hot ?t))))

  (:action use
    :parameters (?p - person ?s - place ?t - thing ?f - furniture)
    :precondition (and (at ?p ?s) (stands ?f ?s) (lies ?t ?f) (lamp ?t))
    :effect (and (lit ?t) (noticed ?t)))

  (:action slice
    :parameters (?p - person ?s - place ?t - thing ?b - thing ?f - furniture)
    :precondition (and (at ?p ?s) (stands ?f ?s) (lies ?t ?f) (cuttable ?t) (carries ?p ?b) (blade ?b)
                       (imply (door ?f) (open ?f)))
    :effect (cut ?t))

  (:action examine_furniture
    :parameters (?p - person ?s - place ?f - furniture)
    :precondition (and (at ?p ?s) (stands ?f ?s))
    :effect (noticed ?f))

  (:action examine_thing
    :parameters (?p - person ?t - thing)
    :precondition (carries ?p ?t)
    :effect (noticed ?t))

  (:action look
    :parameters (?p - person ?s - place)
    :precondition (at ?p ?s)
    :effect (noticed ?s))

  (:action inventory
    :parameters (?p - person)
    :precondition ()
    :effect (noticed ?p))

  (:action help
    :parameters (?p - person)
    :precondition ()
    :effect (noticed ?p))
)
