"""Webhooks: signed HTTP requests of other services that start work.

`listener` serves HTTP (Hypercorn), `app` judges a request and answers it, `signatures` verifies
who sent it, `payload` reads its JSON, and `webhook` makes the work of it.
"""
