#!/usr/bin/env bash
# A build on many machines of a Slurm cluster. Every task of the array does its share; the last job does what is left and
# finishes the store. All machines see the inputs and the output under the same paths.
#
#   INPUTS='/data/web/*.jsonl.zst' TOKENIZER=tokenizer.json OUT=/data/tokens TASKS=64 bash examples/slurm.sh
#
# What is preempted or fails goes on inside its share when Slurm starts it again; `tokpress status $OUT` says how far all are.
set -euo pipefail

: "${INPUTS:?files, a directory or a glob}" "${TOKENIZER:?what tokenizer}" "${OUT:?where the store goes}" "${TASKS:=64}"
BUILD="tokpress build '$INPUTS' --tokenizer '$TOKENIZER' --out '$OUT'"

# --requeue: started again after a preemption. --signal: told to end 60 s before it has to; finished shards are kept.
array=$(sbatch --parsable --job-name tokpress --array "0-$((TASKS - 1))" --requeue --signal TERM@60 \
    --nodes 1 --exclusive --wrap "exec $BUILD --share auto")
# afterany: a share that is lost for good leaves no hole, for this command does whatever is left.
sbatch --job-name tokpress-seal --dependency "afterany:$array" --nodes 1 --exclusive --wrap "exec $BUILD"
