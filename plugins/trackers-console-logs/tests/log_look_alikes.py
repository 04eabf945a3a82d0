"""Lines of programs that no table is of, and lines that look like a row and are none: each log is refused."""

from __future__ import annotations

LOOK_ALIKES = {
    "diffsynth": (
        "diffsynth iteration    1/  10 | elapsed time per iteration (ms): 1200.8 | mse loss: 1.533333E-01\n"
        "diffsynth iteration    2/  10 | elapsed time per iteration (ms): 1100.8 | mse loss: 1.433333E-01\n"
    ),
    "nanotron": (
        "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.1G | "
        "elapsed_time_per_iteration_ms: 11.8K | tokens_per_sec: 22.1K | lm_loss: 2.61 | lr: 1e-05 | grad_n"
        "orm: 1.58\n"
    ),
    "diloco": (
        "17:45:05 [INFO] [Rank 0] step: 1, loss: 10.1818, tokens_per_second: 49722.33, mfu: 4.35\n"
        "17:45:09 [INFO] [Rank 0] step: 2, loss: 10.1930, tokens_per_second: 628145.86, mfu: 50.01\n"
    ),
    "pith": (
        "2026-03-07 14:06:36 | INFO | step 00000001/00000015 | step-time 73.685 sec | cross-entropy-loss 2"
        ".9969 | learning-rate 1.333333e-06 | tokens-per-second 28,143\n"
        "2026-03-07 14:07:05 | INFO | step 00000002/00000015 | step-time 28.156 sec | cross-entropy-loss 2"
        ".8272\n"
    ),
    "gluon": (
        "2020-03-07 01:18:24,772 - root - INFO - Epoch: 2, Batch: 4134/8164, Loss span/answer/total=0.8584"
        "/0.4437/0.9688, LR=0.33334406, grad_norm=33.7039. Time cost=89.56\n"
    ),
    "llama2acc": (
        "[03:23:49.284548] Epoch: [0]  [1480/1504]  lr: 0.333359  closs: 1.3133 (1.4640)  grad_norm: 0.722"
        "8 (1.4159)  time: 4.8166  data: 0.3335  max mem: 51710\n"
    ),
    "nanovlm": (
        "Step: 100, Loss: 1.5678, Val Loss: 1.5333, Tokens/s: 1234.89\n"
        "Epoch 1 | Train Loss: 1.4333 | Val Loss: 1.5333 | Time: 100.33s | T/s: 1234.33\n"
    ),
    "mlx": (
        "Iter 1: Val loss 2.833, Val took 10.8s\n"
        "Iter 10: Train loss 2.583, Learning Rate 1.333e-05, It/sec 1.833, Tokens/sec 300.8, Trained Token"
        "s 2000, Peak mem 10.8 GB\n"
    ),
    "tinygrad": ("    1 93.77 s run, 11.1083 loss, 0.333333000001 LR, 642.76 GB used,  19644.63 GFLOPS\n"),
    "jaxgpt": ("iter 100 loss: train 2.8 val 2.9\n"),
    "restored": ("restored step: 5 with best loss: 0.08\nsaved step: 6 , loss: 0.03 , path: /x\n"),
    "ckpt": (
        "  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration 5\n"
        "best validation loss so far at iteration 1\n"
        "  successfully saved checkpoint from iteration 10 to /c\n"
    ),
    "epochstep": ("epoch: 1, step: 100, loss: 3.8,  lr: 0.34\nepoch: 1, step: 200, loss: 3.7,  lr: 0.34\n"),
    "stepslash": ("step 10/100 | loss 3.5 | lr 1e-4\nstep 20/100 | loss 3.4 | lr 1e-4\n"),
    "steploss2": ("step: 10 loss: 3.5\nstep: 20 loss: 3.4\n"),
    "stepverl": ("step:10 - loss:3.5 - lr:0.4\nstep:20 - loss:3.4 - lr:0.4\n"),
    "epochdict": ("epoch 1: loss 0.8\nepoch 2: loss 0.7\nEpoch 1/10, Loss: 0.8\nEpoch 2/10, Loss: 0.7\n"),
    "tqdmtrain": (
        "train:  50%|█████     | 50/100 [00:05<00:05,  9.13it/s, loss=0.8]\r"
        "train: 100%|██████████| 100/100 [00:10<00:00,  9.13it/s, loss=0.7]\n"
    ),
    "tqdmepoch": (
        "Epoch 1:  50%|█████     | 50/100 [00:05<00:05,  9.13it/s, loss=0.8]\r"
        "Epoch 1: 100%|██████████| 100/100 [00:10<00:00,  9.13it/s, loss=0.7]\n"
    ),
    "gpt2simple": ("[10 | 20.83] loss=3.58 avg=3.63\n[20 | 40.83] loss=3.48 avg=3.53\n"),
    "megatron-text": (
        " > iteration 5 of 10 begins\nsaving checkpoint at iteration       5 to /c in torch_dist format\n"
    ),
    "dict-other": ("{'step': 5, 'loss': 0.8}\n{'a': 1, 'epoch': 2}\n{'epoch': 3, 'loss': 0.58}\n"),
    "evaldict": ("{'eval_accuracy': 0.8, 'epoch': 1.3}\n"),
    "xgboost": ("[0]\ttrain-logloss:0.8\teval-logloss:0.9\n[1]\ttrain-logloss:0.7\teval-logloss:0.88\n"),
    "sb3": (
        "| time/              |          |\n"
        "|    fps             | 500      |\n"
        "|    iterations      | 1        |\n"
        "|    total_timesteps | 2048     |\n"
    ),
    "torchtune": ("1|10|Loss: 1.5678:   1%|          | 10/1000 [00:10<16:30,  1.33it/s]\n"),
    "detectron2": (
        "[03/01 10:00:00 d2.utils.events]:  eta: 1:00:00  iter: 19  total_loss: 2.8  loss_cls: 1.5  time: "
        "0.8  data_time: 0.34  lr: 0.3334  max_mem: 2500M\n"
    ),
    "espnet": (
        "2024-03-07 10:00:00,013 (trainer:700) INFO: 1epoch:train:1-100batch: iter_time=0.34, forward_time"
        "=0.4, loss=50.8, acc=0.58, optim0_lr0=1e-05, train_time=0.8\n"
    ),
    "trainsteps": ("Train step of epoch 1:  50%|█████     | 50/100 [00:05<00:05,  9.13it/s, loss=0.8]\n"),
    "accel-text": ("epoch 1: 50 of 100\nepoch 2: {broken\n"),
    "fs-like": ("| epoch 001 | loss 5 | step 10\n"),
    "llamafactory-bar": (
        "[INFO|2025-03-07 08:17:49] modelcard.py:449 >> Dropping the following result: {'task': {'name': '"
        "Causal Language Modeling', 'type': 'text-generation'}}\n"
    ),
    "yolov5x": ("Epoch 1/10 train: loss 0.8 acc 0.8\n1/10 0.8 0.9\n"),
    "buildnanogpt": (
        "step     0 | loss: 10.288352 | lr 8.6249e-07 | norm: 15.6985 | dt: 900.83ms | tok/sec: 582100.83\n"
        "step     1 | loss: 10.238352 | lr 1.9016e-06 | norm: 14.6985 | dt: 300.83ms | tok/sec: 1744666.83"
        "\n"
    ),
    "gpt-loss-table": (
        "Step: 10 | Loss: 3.583333 | LR: 1.3333e-04 | GradNorm: 1.5833 | Time: 100.33ms | Tok/sec: 1234.33\n"
    ),
    "mathsft": ("step 00010/100 | loss: 1.5833 | lr: 1.33e-04 | dt: 100ms | tok/sec: 1,651 | epoch: 1\n"),
    "autoresearch": (
        "\r"
        "step 00010 (1.3%) | loss: 3.583333 | lr: 1.33e-02 | dt: 100ms | tok/sec: 1,651 | epoch: 0 | remai"
        "ning: 290s    "
    ),
    "dsfork": ("step:   100 /  1000 loss: 0.4583 iter time (s): 1.583 samples/sec: 6.733 eta: 10m \n"),
    "rnn": ("epi:5 , score:3, step_taken:10, score_avg:2.833 , step_avg:9.833\n"),
    "mb-comment": (
        "# Step Time: 0.83s , 32680.69 tok/s/gpu, GPU utilization: 257.4 MODEL_TFLOP/s/GPU , Peak Mem: 64.8GB\n"
    ),
    "skip": ("[INFO] [Rank 0] step=9698, skipped=0, iter time (s): 2.3\n"),
    "keys-values": (
        "Epoch 0 | iter  62 step  62 | loss train: 21.958, val_loss valid: 13.102 | iter time: 35.908 s (s"
        "tep)\n"
        "Epoch 0 | iter  63 step  63 | loss train: 6.761, val_loss valid: 13.102 | iter time: 40.092 s (st"
        "ep)\n"
    ),
    "mmcv": (
        "2020-03-07 04:01:57,829 - mmdet - INFO - Epoch [1][32/678]\tlr: 0.33353, eta: 1 day, 14:34:50, ti"
        "me: 2.963, data_time: 0.275, memory: 9867, loss_rpn_cls: 0.9246, loss: 2.9457\n"
        "2020-03-07 04:01:58,124 - mmdet - INFO - Epoch [1][33/678]\tlr: 0.33353, eta: 1 day, 14:05:12, ti"
        "me: 1.418, data_time: 0.353, memory: 9867, loss_rpn_cls: 0.9262, loss: 2.9296\n"
    ),
    "yolov5": (
        "      0/89     5.94G   0.30078    0.3500   0.34018     0.456         7       640    0.0299    0.6"
        "800    0.6275    0.4117   0.37857   0.34646  0.337368\n"
        "      1/89     5.94G   0.38052   0.34159  0.337058   0.31350         7       640    0.8196    0.0"
        "795    0.0387    0.6055   0.36214   0.33118  0.334065\n"
    ),
    "deepspeed-micro": (
        "stdout: [2022-03-07 08:26:26,101] [INFO] [timer.py:197:stop] 0/17, RunningAvgSamplesPerSec=158.64"
        "480178546472, CurrSamplesPerSec=159.951124629629, MemAllocated=1.08GB, MaxMemAllocated=2.9GB\n"
        "stdout: [2022-03-07 08:26:26,325] [INFO] [timer.py:197:stop] 0/18, RunningAvgSamplesPerSec=157.74"
        "728982912333, CurrSamplesPerSec=145.3112860760849, MemAllocated=1.08GB, MaxMemAllocated=2.9GB\n"
    ),
    "nanochat-fork": (
        "step 00010/01000 (1.33%) | loss: 3.474826 | dt: 123ms | tok/s: 12,428 | mfu: 12.6% | ep:1 pq:0 rg"
        ":8 | eta: 12.8m\n"
        "step 00011/01000 (1.43%) | loss: 3.374826 | dt: 123ms | tok/s: 12,435 | mfu: 12.6% | ep:1 pq:0 rg"
        ":9 | eta: 12.7m\n"
    ),
    "primus-projection": (
        "[20251215 23:50:14][rank-0/8][DEBUG]    [------projection.py:374] :   Rank 00 bubble: 2414.51 ms "
        "(ratio=7.58%), activation_peak=144.74 GB\n"
    ),
    "stanza": (
        "2026-08-01 10:00:00 INFO: Finished STEP 20/50000, loss = 2.512345 (0.123 sec/batch), lr: 0.003000\n"
        "2026-08-01 10:00:09 INFO: step 40: train_loss = 2.462345, dev_score = 0.5123\n"
    ),
    "allennlp": (
        "accuracy: 0.5125, batch_loss: 0.6512, loss: 0.6712 ||:  50%|#####     | 50/100 [00:05<00:05,  9.50it/s]"
        "\n"
        "accuracy: 0.6125, batch_loss: 0.5512, loss: 0.6012 ||: 100%|##########| 100/100 [00:10<00:00,  9.50it/s]"
        "\n"
    ),
    "clu": (
        "I0801 10:00:10.123456 140000 logging_writer.py:48] [100] accuracy=0.512500, loss=1.612500, steps_per_sec"
        "=12.500000\n"
        "I0801 10:00:21.123456 140000 train.py:250] epoch:  1, train_loss: 0.2500, train_accuracy: 92.50\n"
    ),
    "docker": (
        "     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 899.7/899.7 MB 12.3 MB/s eta 0:00:00\n"
        "Step 5/12 : RUN pip install -r requirements.txt\n"
        " => [stage-1 3/7] COPY . /app                                            0.2s\n"
    ),
    "table-of-numbers": (
        "| epoch |   loss   |   err    |  time   |\n"
        "|     1 |  0.51234 |  0.12345 |   12.50 |\n"
        "|     2 |  0.41234 |  0.11345 |   12.40 |\n"
    ),
    "darknet": (
        " 1: 815.123456, 815.123456 avg loss, 0.000000 rate, 6.512345 seconds, 64 images, 9.123456 hours left\n"
    ),
    "lerobot": (
        "INFO 2026-08-01 10:00:00 ts/train.py:232 step:200 smpl:2K ep:5 epch:0.12 loss:0.512 grdn:5.123 lr:1.0e-0"
        "5 updt_s:0.123\n"
        "INFO 2026-08-01 10:00:30 ts/train.py:232 step:400 smpl:3K ep:10 epch:0.24 loss:0.412 grdn:4.123 lr:1.0e-"
        "05 updt_s:0.121\n"
    ),
    "xtuner": (
        "[XTuner][RANK 0][2026-08-01 10:00:00][INFO] Epoch 1 Step 1/100 data_time: 0.1234 lr: 0.000020 time: 4.12"
        "34 loss: 2.512 grad_norm: 1.234 max_memory: 60.12 GB tgs: 7945.1\n"
    ),
    "own-iteration": (
        "iteration    5/   10 | loss: 0.5 | acc: 0.7\n"
        "iteration    6/   10 | loss: 0.4 | acc: 0.8\n"
        "episode 5/10 | reward: 0.5\n"
    ),
    "own-completed": (
        "completed step: 5, loss: 0.5\ncompleted step: 6, loss: 0.4\neval metrics after step: 6, loss=0.5\n"
    ),
    "own-step": (
        "Step 5 | 1.2s | Loss 0.5 | Acc 0.7\nStep 6 | 1.2s | Loss 0.4 | Acc 0.7\nStep 10 | Validation loss: 0.5\n"
    ),
    "own-step-of": ("Step 10/20 | Training loss: 0.5\nStep 10/100, Loss: 0.5\nStep 20/100, Loss: 0.4\n"),
    "own-step-epoch": (
        "step 10 | epoch 0 | loss 2.5 | acc 0.5\n"
        "step 20 | epoch 0 | my loss is 2.4\n"
        "[val] step 10 | epoch 0 | loss 2.5\n"
    ),
}
