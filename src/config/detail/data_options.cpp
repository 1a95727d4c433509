#include "detail/option_rows.hpp"

#include <string>

namespace tessera::config::detail {
namespace {

using enum OptionType;

char const* const local_files_only =
    "nothing is downloaded from the Hub; models, tokenizers and texts are local paths";
char const* const one_reader =
    "no effect: each rank reads its own samples from the memory-mapped tokenized text";

void add_texts(OptionTable& t) {
  t.group("Data");
  t.add(path, "train_file", {},
        "files to train on: .txt, .json, .jsonl, .csv, each also .gz or .zst, or .bin; several: "
        "a.txt,b.txt or 'data/*.jsonl'");
  t.add(path, "validation_file", {}, "files to evaluate on, named as train_file");
  t.add(path, "test_file", {}, "files for do_predict, named as train_file");
  t.add(integer, "validation_split_percentage", 5,
        "percentage of train_file used for evaluation when there is no validation_file")
      .at_least(0)
      .at_most(99)
      .unit("%");
  t.add(integer, "block_size", {}, "sequence length; none: the tokenizer's limit, at most 1024")
      .at_least(2)
      .unit("tokens");
  t.add(integer, "max_train_samples", {}, "train on at most N sequences")
      .at_least(1)
      .unit("sequences");
  t.add(integer, "max_eval_samples", {}, "evaluate on at most N sequences")
      .at_least(1)
      .unit("sequences");
  t.add(integer, "max_predict_samples", {}, "predict at most N sequences of test_file")
      .at_least(1)
      .unit("sequences");
  t.add(boolean, "keep_linebreaks", true, "keep the line ends of text files");
  t.add(
       string, "data_mixture", {},
       "mix the data sets that commas separate in train_file by these weights: 0.7,0.3; none: they "
       "are one data set")
      .shown_as("weights");
  t.add(boolean, "skip_broken_records", false,
        "leave out JSON and CSV records that cannot be read, with a warning");
  t.add(boolean, "append_eos", false, "append the tokenizer's eos_token to each record");
  t.add(boolean, "reset_attention_mask", false, "attend within documents, up to the eos_token");
  t.add(boolean, "reset_position_ids", false, "positions count from 0 in each document");
  t.add(boolean, "eod_mask_loss", false, "the token after an eos_token is not predicted");
}

void add_loading(OptionTable& t) {
  t.add(integer, "dataloader_num_workers", 0,
        "threads of each rank that load samples ahead; 0: none")
      .at_least(0)
      .at_most(256);
  t.add(integer, "dataloader_prefetch_factor", {},
        "micro-batches that each of these threads loads ahead (2)")
      .at_least(1);
  t.add(boolean, "dataloader_drop_last", false,
        "drop the last incomplete batch of an epoch; otherwise it is filled with samples from the "
        "start of the epoch");
  t.add(choice, "train_sampling_strategy", "random",
        "order of the training sequences; random and group_by_length are random orders of Trainer, "
        "philox is Tessera's")
      .one_of({"random", "sequential", "philox", "group_by_length"})
      .except("batch_rebalance", "all sequences have block_size tokens; use random");
  t.add(boolean, "group_by_length", false, "that strategy, as transformers 4 names it");
  t.add(boolean, "overwrite_cache", false, "tokenize the texts again")
      .hint("no effect: checksums of text, tokenizer and settings find every change");
  t.add(integer, "preprocessing_num_workers", {},
        "threads of rank 0 that tokenize; none: one per core; the sequences do not depend on it")
      .at_least(1);
}

void add_unused(OptionTable& t) {
  t.add(string, "dataset_name", {}, "data set on the Hub")
      .refuse(std::string(local_files_only) + ". Use --train_file");
  t.add(string, "dataset_config_name", {}, "configuration of the data set")
      .refuse(std::string(local_files_only) + ". Use --train_file");
  t.add(boolean, "streaming", false, "read the texts while training")
      .refuse("texts are tokenized once at the start; leave it out");
  t.add(string, "length_column_name", "length", "column with precomputed lengths")
      .hint("no effect");
  t.add(boolean, "dataloader_pin_memory", true, "pinned host memory")
      .hint("no effect: inputs of a GPU always pass through pinned host memory");
  t.add(boolean, "dataloader_persistent_workers", false,
        "keep the data loading processes between epochs")
      .hint(one_reader);
  t.add(string, "dataloader_multiprocessing_context", {},
        "start method of the data loading processes")
      .hint(one_reader);
  t.add(boolean, "dataloader_in_order", true, "deliver batches in order").hint(one_reader);
  t.add(boolean, "remove_unused_columns", true, "drop columns the model does not take")
      .hint("no effect: only the text column is read");
  t.add(list, "label_names", {}, "names of the labels")
      .hint("no effect: the labels are the next tokens");
  t.add(boolean, "ignore_data_skip", false, "start from the first sample after a resume")
      .refuse("a resume continues with the next sample; leave it out");
}

}  // namespace

void add_data_options(OptionTable& t) {
  add_texts(t);
  add_loading(t);
  add_unused(t);
}

}  // namespace tessera::config::detail
