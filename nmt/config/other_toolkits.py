"""What other toolkits call a recipe key, with the conversion where the unit differs.

The names are those of JoeyNMT 2, fairseq 0.12, Hugging Face transformers (TrainingArguments, model
configurations, generation), OpenNMT-py 3 and Sockeye 3: ``-`` becomes ``_``, without the leading
dashes. A name of ours is listed only where a toolkit gives it another meaning.
"""

from __future__ import annotations

import difflib

# Our key, and the names that stand for it; GROUP.NAME holds in one group of a recipe only.
_ROWS = {
    # the end of training
    "train.max_validations, which counts validations (epochs x updates of an epoch / "
    "train.validate_every)": "epochs max_epoch max_epochs num_epochs num_train_epochs "
    "max_num_epochs",
    "schedule.total_updates (kind: linear), or train.max_validations (updates / "
    "train.validate_every)": "updates max_update max_updates max_steps steps train_steps "
    "total_num_update num_training_steps",
    "train.stop_patience, in validations": "early_stopping early_stopping_patience "
    "max_num_checkpoint_not_improved",
    "train.stop_patience to end training, or schedule.patience to decay the rate": "patience",
    "train.min_lr": "stop_min_lr learning_rate_min",
    "time_limit, in hours": "stop_time_hours max_seconds max_time",
    # validations, checkpoints and logs
    "train.validate_every, in updates; each validation also saves a checkpoint": "validation_freq "
    "valid_steps eval_steps eval_every checkpoint_interval save_checkpoint_steps save_steps "
    "save_interval save_interval_updates validate_interval validate_interval_updates "
    "eval_strategy evaluation_strategy save_strategy",
    "train.keep, the newest checkpoints in addition to the best one": "keep_best_ckpts "
    "keep_checkpoint keep_last_params keep_last_epochs keep_interval_updates save_total_limit",
    "train.average": "average_decay average_checkpoints num_epoch_checkpoints",
    "score.select_by": "early_stopping_metric early_stopping_criteria best_checkpoint_metric "
    "metric_for_best_model optimized_metric",
    "score.metrics": "eval_metric eval_metrics metric valid_metrics",
    "train.log_every, in updates": "logging_freq log_interval logging_steps report_every",
    "train.tensorboard": "tensorboard_logdir tensorboard_log_dir report_to",
    "train.wandb": "wandb_project",
    "out, the run folder": "model_dir save_dir output_dir save_model output",
    "init.from, the run folder of a trained model (nmt-train --resume continues a run)": ""
    "load_model restore_file finetune_from_model train_from params model_name_or_path pretrained "
    "resume_from_checkpoint",
    "nmt-train --fresh, an option of the command": "overwrite overwrite_output_dir",
    # batches
    "data.batch_tokens": "max_tokens",
    "data.batch_tokens, in tokens (sentences x subwords of a typical sentence)": "batch_size "
    "batch_type max_sentences train_batch_size per_device_train_batch_size",
    "decode.batch_tokens, in source subwords x beam": "eval_batch_size valid_batch_size "
    "per_device_eval_batch_size decode.batch_size",
    "optim.accumulate, in batches per update": "batch_multiplier update_freq update_interval "
    "accum_count gradient_accumulation_steps",
    "data.max_pieces, in subwords, or data.max_len, in words": "max_sent_length max_length "
    "max_seq_len src_seq_length tgt_seq_length max_source_positions max_target_positions "
    "max_source_length max_target_length",
    # learning rate and optimizer
    "schedule.lr (kind: linear, no_warmup or constant), or schedule.scale, a factor on the formula "
    "(kind: inverse_sqrt or val_decay)": "learning_rate initial_learning_rate learning_rate_peak "
    "learning_rate_factor peak_lr max_lr base_lr",
    "schedule.warmup_updates": "warmup warmup_steps num_warmup_steps learning_rate_warmup",
    "schedule.warmup_updates, in updates (ratio x all updates)": "warmup_ratio",
    "schedule.end_lr (kind: linear)": "end_learning_rate",
    "schedule.kind; noam is inverse_sqrt, plateau is val_decay": "lr_scheduler lr_scheduler_type "
    "scheduling scheduler decay_method learning_rate_scheduler_type",
    "schedule.decay": "decrease_factor lr_shrink learning_rate_decay learning_rate_reduce_factor",
    "schedule.patience": "learning_rate_reduce_num_not_improved",
    "optim.kind": "optimizer",
    "optim.betas, a list of two": "adam_betas optimizer_betas adam_beta1 adam_beta2 beta1 beta2",
    "optim.eps": "adam_eps adam_epsilon optimizer_epsilon",
    "optim.clip_norm, of all gradients together": "clip_grad_norm clip_grad_val max_grad_norm "
    "gradient_clipping_threshold gradient_clip_val grad_clip",
    "optim.label_smoothing": "label_smoothing_factor criterion",
    "precision": "fp16 bf16 amp model_dtype torch_dtype dtype",
    "device": "use_cuda no_cuda use_cpu cpu gpu device_id device_ids",
    "torchrun --nproc-per-node N, a command (docs/howto/gpus.md)": "world_size gpu_ranks "
    "n_gpu num_gpus distributed_world_size",
    "seed": "random_seed",
    # model
    "model.dim": "hidden_size d_model rnn_size word_vec_size num_embed embedding_dim embed_dim "
    "encoder_embed_dim decoder_embed_dim transformer_model_size",
    "model.ffn_dim": "ff_size d_ff intermediate_size encoder_ffn_dim decoder_ffn_dim "
    "encoder_ffn_embed_dim decoder_ffn_embed_dim transformer_ff "
    "transformer_feed_forward_num_hidden",
    "model.heads": "num_heads nhead num_attention_heads encoder_attention_heads "
    "decoder_attention_heads transformer_attention_heads",
    "model.enc_layers and model.dec_layers": "layers num_layers n_layers num_hidden_layers",
    "model.enc_layers": "encoder_layers num_encoder_layers",
    "model.dec_layers": "decoder_layers num_decoder_layers",
    "model.dim, model.ffn_dim, model.heads, model.enc_layers and model.dec_layers": "arch encoder "
    "decoder",
    "model.dropout": "dropout_rate hidden_dropout_prob embed_dropout transformer_dropout_prepost",
    "model.attn_dropout": "attention_dropout attention_probs_dropout_prob "
    "transformer_dropout_attention",
    "model.ffn_dropout": "activation_dropout relu_dropout transformer_dropout_act",
    "model.activation": "activation_fn activation_function pos_ffn_activation_fn hidden_act",
    "model.norm, or model.norm_place": "layer_norm layernorm",
    "model.norm_place": "layer_norm_position pre_norm prenorm norm_first encoder_normalize_before "
    "decoder_normalize_before",
    "model.norm_eps": "layer_norm_eps layer_norm_epsilon",
    "model.tie": "tied_embeddings tied_softmax share_embeddings share_all_embeddings "
    "share_decoder_embeddings share_decoder_input_output_embed tie_word_embeddings "
    "weight_tying_type",
    "model.init": "initializer param_init param_init_glorot",
    # data and segmentation
    "src, a language code": "src_lang source_lang source_language",
    "tgt, a language code": "tgt_lang trg trg_lang target_lang target_language",
    "data.train, the path prefix of PREFIX.SRC and PREFIX.TGT": "trainpref train_file path_src "
    "path_tgt",
    "data.dev, the path prefix of PREFIX.SRC and PREFIX.TGT": "valid validpref validation "
    "validation_file validation_source validation_target",
    "data.test, the path prefix of PREFIX.SRC and PREFIX.TGT": "testpref test_file",
    "segment.merges (kind: fastbpe), or segment.vocab_size (kind: sentencepiece)": "num_words "
    "src_vocab_size tgt_vocab_size voc_limit",
    "segment.merges (kind: fastbpe)": "num_merges bpe_merges num_operations",
    "segment.codes (kind: fastbpe)": "bpe_codes bpe_path",
    "segment.model (kind: sentencepiece)": "src_subword_model tgt_subword_model "
    "sentencepiece_model",
    "segment.kind": "bpe subword_type src_subword_type tgt_subword_type tokenizer tokenizer_type",
    "segment.vocab_threshold (kind: fastbpe), or segment.min_count (kind: whitespace)": "min_freq "
    "voc_min_freq word_min_count",
    "segment.dropout": "bpe_dropout",
    "segment.sampling_alpha (kind: sentencepiece)": "src_subword_alpha tgt_subword_alpha",
    # search
    "decode and score, two groups": "testing",
    "decode.beam": "beam_size num_beams",
    "decode.length_alpha (and decode.length_penalty=mean)": "lenpen",
    "decode.length_alpha": "length_penalty_alpha alpha beam_alpha",
    "decode.max_len_offset, in subwords (the length of the source plus this)": "max_output_length "
    "max_new_tokens max_len_a max_len_b decode.max_len decode.max_length",
    "decode.allow_unk": "unkpen ban_unk_token generate_unk",
    "nmt-translate --n-best, an option of the command": "nbest n_best nbest_size "
    "num_return_sequences",
    "nmt-translate --min-len, an option of the command": "min_len min_length",
    "nmt-translate --no-repeat-ngram, an option of the command": "no_repeat_ngram_size "
    "block_ngram_repeat",
}
NAMES = {name: ours for ours, names in _ROWS.items() for name in names.split()}

# our key -> a value in other toolkits -> ours
VALUES = {
    "schedule.kind": {
        "noam": "inverse_sqrt",
        "warmupinversesquareroot": "inverse_sqrt",
        "plateau": "val_decay",
        "plateau_reduce": "val_decay",
        "reduce_lr_on_plateau": "val_decay",
        "polynomial": "linear",
        "polynomial_decay": "linear",
        "fixed": "constant",
    },
    "segment.kind": {
        "bpe": "fastbpe",
        "subword_nmt": "fastbpe",
        "spm": "sentencepiece",
        "unigram": "sentencepiece",
        "word": "whitespace",
    },
    "model.norm": {"standard": "layernorm", "rms": "rmsnorm", "rms_norm": "rmsnorm"},
    "optim.kind": {"adamw_torch": "adamw", "fusedadam": "adam"},
    "precision": {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32"},
    "device": {"gpu": "cuda"},
}


def our_value(name: str, value: str) -> str | None:
    """Return our word for a value that another toolkit has for our key ``name``, or None."""
    return VALUES.get(name, {}).get(value.lower().replace("-", "_"))


def our_name(group: str, key: str, exact: bool = True) -> str | None:
    """Return our key for a name of another toolkit, or None if no toolkit has the name.

    Args:
        group: the group in which the name is written; empty at the top level and for an option.
        key: the name, with or without the dashes of an option.
        exact: False also allows a typing error.
    """
    name = key.lstrip("-").replace("-", "_").lower()
    if not exact:
        name = next(iter(difflib.get_close_matches(name, NAMES, 1, cutoff=0.85)), name)
    return NAMES.get(f"{group}.{name}") or NAMES.get(name)
