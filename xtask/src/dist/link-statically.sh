#!/bin/sh
# As RUSTC_WRAPPER: compiles as asked, and links the program once more, statically, to $LINKED_STATICALLY. Cargo itself
# would compile all that the program is made of anew, with other features than the tests have.
"$@" || exit
case " $* " in
*" --crate-name radeon_cluster "*" --crate-type bin "*)
    "$@" -C target-feature=+crt-static -C incremental="$LINKED_STATICALLY.incremental" -C extra-filename= \
        -o "$LINKED_STATICALLY" 2> "$LINKED_STATICALLY.log" || { cat "$LINKED_STATICALLY.log" >&2; exit 1; }
    ;;
esac
