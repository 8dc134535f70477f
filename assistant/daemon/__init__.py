"""The watchdog: `nightshift watch` as a daemon. It leads or stands by, looks, lets incidents be worked on."""
